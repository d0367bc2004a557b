"""See every tensor of a forward pass.

The model's code names its tensors as it makes them: `scores = tap("scores", scores)`. Normally `tap` is the
identity. Inside `with trace(model) as t:` it records, and `t["decoder.layers.0.self_attention.scores"]` is that
tensor: the path of the module that was running, then the name. While one is taken, attention and dropout run as they
read, because their fused twins never make the tensors worth looking at; norms and activations hide none. A trace
belongs to the thread and the model it was opened for: passes of others, at the same time, are not recorded.

A trace can also change what it sees: `edit={"decoder.layers.0.cross_attention.weights": even}` gives each tensor of
that name to the function `even` as it is made, and the pass goes on with what comes back. A head silenced, a mask
lifted, an activation swapped in from another input: cause, where looking alone gives correlation.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import Any

from torch import Tensor, nn

from clearhead.disk import make_folder, write_whole
from clearhead.errors import InputError

Edit = Mapping[str, Callable[[Tensor], Tensor]]  # by name; `*` stands for anything, "name#2" for the second time only
_current: "ContextVar[Trace | None]" = ContextVar("trace", default=None)  # each thread has its own
_counting = Lock()
_open = 0  # traces being taken in any thread; while there is none, nobody asks further


def tap(name: str, tensor: Tensor, letters: str = "") -> Tensor:
    """Give a tensor a name (and its dimensions letters, as "B H S T"); the code goes on with what this returns."""
    taken = _current.get() if _open else None
    return tensor if taken is None else taken.record(name, tensor, letters)


def recording() -> bool:
    """Whether a trace is being taken; fused twins ask, and step aside for the plain code."""
    return _open > 0 and _current.get() is not None


class Trace:
    """Named tensors in the order they were made, with the letters of their dimensions."""

    def __init__(self, edit: Edit | None = None) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.letters: dict[str, str] = {}
        self.scope: list[str] = []
        self.edit = edit or {}
        self.edited: set[str] = set()  # the names of `edit` that have met a tensor

    def record(self, name: str, tensor: Tensor, letters: str) -> Tensor:
        """Keep a copy of the tensor; returns what the pass goes on with."""
        if not self.scope:  # another model's, run inside the same `with`
            return tensor
        path = f"{self.scope[-1]}.{name}" if self.scope[-1] else name
        unique, number = path, 2
        while unique in self.tensors:  # a module that runs twice in one pass keeps both
            unique, number = f"{path}#{number}", number + 1
        for wanted, change in self.edit.items():
            if wanted == unique or fnmatchcase(path, wanted):
                self.edited.add(wanted)
                tensor = replaced(tensor, change, unique)
        self.tensors[unique] = tensor.detach().clone()
        self.letters[unique] = letters
        return tensor

    def __getitem__(self, name: str) -> Tensor:
        if name in self.tensors:
            return self.tensors[name]
        close = [path for path in self.tensors if path.endswith("." + name)]
        if len(close) == 1:
            return self.tensors[close[0]]
        found = f"several tensors end in it: {', '.join(close[:4])} …" if close else f"recorded: {', '.join(self)}"
        raise KeyError(f"no single tensor {name!r}; {found}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def named(self, name: str) -> dict[str, Tensor]:
        """All tensors of one name, by path: `named("weights")` is every layer's attention."""
        return {path: t for path, t in self.tensors.items() if path.split("#")[0].rsplit(".", 1)[-1] == name}

    def save(self, path: str | Path) -> None:
        """Write `path` (safetensors) and, beside it, `path`.json with the order, shapes and letters."""
        from safetensors.torch import save

        path = Path(path)
        make_folder(path.parent)
        write_whole(path, save({name: tensor.contiguous() for name, tensor in self.tensors.items()}))
        rows = [
            {"name": name, "letters": self.letters[name], "shape": list(tensor.shape), "dtype": str(tensor.dtype)[6:]}
            for name, tensor in self.tensors.items()
        ]
        table = {"format": "clearhead-trace-1", "tensors": rows}
        write_whole(Path(f"{path}.json"), json.dumps(table, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read back what `save` wrote."""
        from safetensors.torch import load_file

        table = Path(f"{path}.json")
        if not Path(path).is_file() or not table.is_file():
            raise InputError(f"no trace at {path}: wanted that file and {table} beside it")
        described = json.loads(table.read_text())
        if described.get("format") != "clearhead-trace-1":
            raise InputError(f"{table}: format {described.get('format')!r} is not 'clearhead-trace-1'")
        tensors = load_file(str(path))
        result = cls()
        for row in described["tensors"]:
            result.tensors[row["name"]] = tensors[row["name"]]
            result.letters[row["name"]] = row["letters"]
        return result


def replaced(tensor: Tensor, change: Callable[[Tensor], Tensor], name: str) -> Tensor:
    """What an edit makes of a tensor. It gets a copy, because it may write into what it is given."""
    made = change(tensor.clone())
    if not isinstance(made, Tensor) or made.shape != tensor.shape or made.dtype != tensor.dtype:
        found = f"{made.dtype} {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise InputError(f"the edit of {name} gave {found}; wanted {tensor.dtype} {tuple(tensor.shape)}, as it was")
    return made


@contextmanager
def trace(model: nn.Module | None = None, edit: Edit | None = None) -> Iterator[Trace]:
    """Record every named tensor of the passes that this thread makes through `model` inside the `with`.

    Without a model: of everything this thread computes, by bare names, such as a call of `attention` alone. `edit`
    replaces tensors as they are made, and the trace holds what they were replaced by.
    """
    global _open
    if _current.get() is not None:
        raise InputError("a trace is being taken already; traces do not nest")
    taken = Trace(edit)
    if model is None:
        taken.scope.append("")

    def enter(path: str) -> Any:
        def hook(module: nn.Module, arguments: object) -> None:
            if _current.get() is taken:  # and not a pass of another thread through the same model
                taken.scope.append(path)

        return hook

    def leave(module: nn.Module, arguments: object, output: object) -> None:
        if _current.get() is taken:
            taken.scope.pop()

    hooks = []
    for path, module in () if model is None else model.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(path)))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    token = _current.set(taken)
    with _counting:
        _open += 1
    try:
        yield taken
        unmet = [name for name in taken.edit if name not in taken.edited]
        if unmet:  # a slip in a name would look like a piece that does not matter
            raise InputError(f"no tensor to edit is called {unmet[0]!r}; recorded: {', '.join(taken) or 'none'}")
    finally:
        with _counting:
            _open -= 1
        _current.reset(token)
        for hook in hooks:
            hook.remove()
