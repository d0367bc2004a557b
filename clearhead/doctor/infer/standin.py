"""Stand-ins for packages that are not installed, so that a file that plots or tokenizes can still be imported.

While the file is imported they accept anything; afterwards they raise when used. So a model that really needs one
says so, and one that only lives beside a plot can be examined.
"""

import sys
from types import ModuleType
from typing import Any

importing = False


class Missing:
    """Something of a package that is not there."""

    def __init__(self, *name: Any, **_: Any) -> None:
        self._name = name[0] if name and isinstance(name[0], str) else "something"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *given: Any, **_: Any) -> Any:
        if not importing:
            raise ModuleNotFoundError(f"{self._name} is needed here, and {self._name.split('.')[0]} is not installed")
        # a decorator gives back what it decorates
        return given[0] if len(given) == 1 and callable(given[0]) else Missing(self._name)

    def __or__(self, other: Any) -> "Missing":  # annotations: Tensor | Missing
        return self

    __ror__ = __or__

    def __getitem__(self, key: Any) -> "Missing":
        return self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)


class StandIn(ModuleType):
    """A module in which every name is missing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # so that submodules can be asked for

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")


class Finder:
    """Finds submodules of stand-ins: `import torchtext.data.functional`."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        from importlib.machinery import ModuleSpec

        return ModuleSpec(fullname, self) if self.has(fullname) else None  # type: ignore[arg-type]

    def has(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self.names)

    def create_module(self, spec: Any) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


class standing_in:
    """While it is entered, the packages named (more can be added) are found as stand-ins."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.finder = Finder(self.names)

    def __enter__(self) -> "standing_in":
        global importing
        importing = True
        sys.meta_path.insert(0, self.finder)
        return self

    def __exit__(self, *_: object) -> None:
        global importing
        importing = False
        sys.meta_path.remove(self.finder)
        self.forget()

    def add(self, name: str) -> None:
        """Stand in for one more package."""
        self.names.add(name)
        if name == "tensorboard":
            self.names.add("torch.utils.tensorboard")  # which asks for a version
        self.forget()

    def forget(self) -> None:
        """Nobody else should meet a stand-in, and nobody here half of a package."""
        for name in [name for name in sys.modules if self.finder.has(name)]:
            del sys.modules[name]
