"""The doctor in pytest: `pytest --doctor TARGET`, or `doctor.parametrize(spec)` in a test file. One item a probe.

pytest finds this module by its entry point, so it is imported in every run of whoever installed Clearhead: torch and
the rest of the doctor are imported only when a model is examined.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.doctor.describe import Description
    from clearhead.doctor.infer import Inferred


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("doctor", "silent bugs in Transformers (clearhead doctor)")
    group.addoption(
        "--doctor",
        action="append",
        default=[],
        metavar="TARGET",
        help="examine this model, one item a probe: module:Class, file.py:Class or a description (can be repeated)",
    )
    group.addoption("--doctor-quick", action="store_true", help="leave out probes that train or use long inputs")


def pytest_configure(config: Any) -> None:
    if config.getoption("--doctor", None):
        import pytest

        # first, so that -k and the like choose among the items
        pytest.hookimpl(tryfirst=True)(Items.pytest_collection_modifyitems)
        config.pluginmanager.register(Items(), "clearhead-doctor-items")


class Items:
    """Collects the items of `--doctor`; it is only there when the option is."""

    def pytest_collection(self, session: Any) -> None:
        """Without files on the command line, only the models are examined."""
        if session.config.args_source.name != "ARGS":
            session.config.args = []

    def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> None:
        import pytest

        from clearhead.doctor.probes import PROBES, SLOW

        quick = session.config.getoption("--doctor-quick")
        names = [name for name in PROBES if not (quick and name in SLOW)]

        class Probe(pytest.Item):
            """One probe of one model."""

            def __init__(self, target: str, probe: str, **rest: Any) -> None:
                super().__init__(f"doctor[{target}-{probe}]", **rest)
                self.target, self.probe = target, probe

            def runtest(self) -> None:
                inferred = described(self.target)
                if inferred.code:
                    self.add_report_section("call", "assumed", "\n".join(inferred.assumed))
                ask(inferred.spec, self.probe)

            def reportinfo(self) -> tuple[Path, None, str]:
                return Path(self.target.rpartition(":")[0] or self.target), None, self.name

        for target in session.config.getoption("--doctor"):
            items += [Probe.from_parent(session, target=target, probe=probe) for probe in names]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was assumed about models that nobody described."""
        for target, inferred in KNOWN.items():
            if not isinstance(inferred, Exception) and inferred.code:
                terminalreporter.section(f"doctor: assumed about {target}")
                for line in inferred.assumed:
                    terminalreporter.line(line)


KNOWN: "dict[str, Inferred | Exception]" = {}  # targets of this run: described once, asked by every item


def described(target: str) -> "Inferred":
    """The description of a target; what stands in the way fails each of its items with the same words."""
    import pytest

    from clearhead.doctor.infer.target import describe_target
    from clearhead.errors import InputError

    if target not in KNOWN:
        try:
            KNOWN[target] = describe_target(target)
        except InputError as error:
            KNOWN[target] = error
    found = KNOWN[target]
    if isinstance(found, Exception):
        pytest.fail(str(found), pytrace=False)
    return found


def ask(spec: "Description", probe: str) -> None:
    """One probe as a test: errors fail it, a probe that cannot be armed is skipped with its reason."""
    import pytest

    from clearhead.doctor.examine import check
    from clearhead.doctor.infer.load import quiet
    from clearhead.doctor.infer.raised import told
    from clearhead.doctor.render import text
    from clearhead.errors import InputError

    try:
        with quiet():
            report = check(spec, only=[probe])
    except InputError as error:
        if str(error).startswith("nothing could be examined"):
            pytest.skip(str(error))
        pytest.fail(str(error), pytrace=False)
    except Exception as error:
        pytest.fail(f"the model raised {told(error)}", pytrace=False)
    if report.errors:
        pytest.fail(text(report), pytrace=False)


def parametrize(spec: "Description", only: Iterable[str] | None = None, quick: bool = False) -> Callable[..., Any]:
    """A test function with one item a probe: `test_model = doctor.parametrize(spec)` in a test file."""
    import pytest

    from clearhead.doctor.examine import chosen

    @pytest.mark.parametrize("probe", chosen(only, quick))
    def test_probe(probe: str) -> None:
        ask(spec, probe)

    return test_probe
