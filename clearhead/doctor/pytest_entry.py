"""One test item for each probe: put these lines into a test file, and every pull request is examined.

from clearhead import doctor
from mypackage.model import spec

test_model = doctor.parametrize(spec)
"""

from collections.abc import Callable, Iterable
from typing import Any

from clearhead.doctor.describe import Description
from clearhead.doctor.examine import check, chosen
from clearhead.doctor.render import text
from clearhead.errors import InputError


def parametrize(spec: Description, only: Iterable[str] | None = None, quick: bool = False) -> Callable[..., Any]:
    """A test function with one item a probe; a probe that cannot be armed is skipped with its reason."""
    import pytest

    @pytest.mark.parametrize("probe", chosen(only, quick))
    def test_probe(probe: str) -> None:
        try:
            report = check(spec, only=[probe])
        except InputError as error:
            if str(error).startswith("nothing could be examined"):
                pytest.skip(str(error))
            pytest.fail(str(error), pytrace=False)
        if report.errors:
            pytest.fail(text(report), pytrace=False)

    return test_probe
