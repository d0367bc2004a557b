"""Libraries from PyPI, described in bench/wild as their clones are: the doctor says what is true of them, no more.

`make test-long` installs them without what they depend on; a library that is not installed is skipped.
"""

import importlib.util
import tomllib
from pathlib import Path

import pytest

from bench.wild.__main__ import TRUTH, in_child, judge
from bench.wild.zoo import WILD

PACKAGES = {
    "openai/whisper": "whisper",
    "Lightning-AI/litgpt": "litgpt",
    "labmlai/annotated_deep_learning_paper_implementations": "labml_nn",
    "lucidrains/x-transformers": "x_transformers",
}
NAMES = [name for name, entry in WILD.items() if entry.repository in PACKAGES]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_installed_library(name: str, tmp_path: Path) -> None:
    repository = WILD[name].repository
    found = importlib.util.find_spec(PACKAGES[repository])
    if found is None or found.origin is None:
        pytest.skip(f"{PACKAGES[repository]} is not installed")
    package = Path(found.origin).parent
    clone = tmp_path / repository.replace("/", "+")  # an installed package, laid out as its repository is
    clone.mkdir()
    (clone / package.name).symlink_to(package)
    result = in_child(name, tmp_path, quick=False, timeout=600.0)
    judge(name, result, tomllib.loads(TRUTH.read_text())["true"])
    assert result["false"] == [], result.get("unusable") or result["text"]
    assert result["missed"] == []
