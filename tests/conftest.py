"""What all tests share: where the data lies, one thread per worker, and hypothesis without a clock."""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Workers run side by side on few cores, and for tensors of test size two threads are slower than one.
torch.set_num_threads(1)

# A shared machine pauses at will, so a deadline measures the neighbours; derandomised, a failure repeats.
settings.register_profile("clearhead", deadline=None, derandomize=True)
settings.load_profile("clearhead")


# Started in the background (`make test &`), Ctrl-C is ignored here and in every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Token stores and sums of files go where nobody else looks, and nothing is left of them.
os.environ["CLEARHEAD_CACHE"] = tempfile.mkdtemp(prefix="clearhead-cache-")
atexit.register(shutil.rmtree, os.environ["CLEARHEAD_CACHE"], ignore_errors=True)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data and weights: CLEARHEAD_DATA, or shared/data beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CLEARHEAD_DATA", beside))
    if not folder.is_dir():
        message = f"needs the data folder {folder}; set CLEARHEAD_DATA"
        if os.environ.get("CLEARHEAD_REQUIRE_DATA"):
            pytest.fail(message)
        pytest.skip(message)
    return folder
