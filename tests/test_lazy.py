"""Packages that load their names on first use: each name is there, and importing the package imports no torch."""

import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = ("clearhead", "clearhead.data", "clearhead.doctor", "clearhead.training")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_is_found_and_no_other(name: str) -> None:
    package = import_module(name)
    for public in package.__all__:
        assert getattr(package, public) is getattr(package, public)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("name", ["clearhead.model", "clearhead.tokenizer"])
def test_what_a_package_lists_is_there(name: str) -> None:
    package = import_module(name)
    for public in package.__all__:
        assert getattr(package, public) is not None


def test_importing_them_does_not_import_torch() -> None:
    code = f"import sys, {', '.join(PACKAGES)}; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
