"""A fork that costs little, for thousands of commands: what is there already is left out of the child's collections of
garbage, which would otherwise touch, and so copy, all of it; and the tree of commands is built once, not in each.
Nothing of yours is touched: the cache of data is one of ours."""

import atexit
import gc
import os
import shutil
import tempfile

import typer

from clearhead.cli.main import app

WORKSPACE = "/dev/shm" if os.path.isdir("/dev/shm") else None  # thousands of fsyncs would wait for a disk
COMMANDS = typer.main.get_command(app)
CACHE = "CLEARHEAD_CACHE"
if CACHE not in os.environ:
    os.environ[CACHE] = tempfile.mkdtemp(prefix="clearhead-cache-", dir=WORKSPACE)
    atexit.register(shutil.rmtree, os.environ[CACHE], ignore_errors=True)


def fork() -> int:
    """As `os.fork`."""
    gc.freeze()
    child = os.fork()
    if child:
        gc.unfreeze()
    else:
        typer.main.get_command = lambda typer_instance: COMMANDS
    return child
