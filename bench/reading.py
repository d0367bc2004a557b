"""How much one must read to follow a pass: lines, files, functions and depth of a model of one layer.

    python -m bench.reading                        our models, as run by default and as read (`kernels="plain"`)
    python -m bench.reading --show decoder         … and the lines themselves, in the order in which they first run
    python -m bench.reading --peers nanoGPT whisper     also the model files of clones in these folders

Counted are the distinct lines of the project that a forward pass executes, the files and functions they are in, and
how deep the calls go. Frames of torch are not counted: everybody has those. The pass is a batch of two sequences with
padding for ours; the peers' models have none.
"""

import argparse
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import clearhead
from clearhead.model import build, configure

SMALL = {"vocab_size": 20, "d_model": 16, "heads": 2, "d_ff": 32}


@dataclass
class Read:
    """What a pass ran through, in the order of first execution."""

    lines: dict[tuple[str, int], None] = field(default_factory=dict)
    functions: set[tuple[str, str]] = field(default_factory=set)
    depth: int = 0

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.lines}


def read(work: Callable[[], object], folder: Path) -> Read:
    """Run `work` and note every line below `folder` that it executes."""
    found, inside = Read(), str(folder)

    def depth(frame: FrameType | None) -> int:
        count = 0
        while frame is not None:
            count += frame.f_code.co_filename.startswith(inside)
            frame = frame.f_back
        return count

    def follow(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(inside):
            return None
        if event == "call":
            found.functions.add((code.co_filename, code.co_qualname))
            found.depth = max(found.depth, depth(frame))
        elif event == "line":
            found.lines[code.co_filename, frame.f_lineno] = None
        return follow

    threading.settrace(None)
    sys.settrace(follow)
    try:
        work()
    finally:
        sys.settrace(None)
    return found


def show(name: str, found: Read) -> None:
    counts = (len(found.lines), len(found.files), len(found.functions), found.depth)
    print(f"  {name:<44}{counts[0]:6} lines {counts[1]:4} files {counts[2]:5} functions {counts[3]:5} deep")


def ours(kind: str, kernels: str, padded: bool, training: bool = False) -> Read:
    shape: dict[str, Any] = {**SMALL, "kind": kind, "kernels": kernels, "encoder_layers": 1, "decoder_layers": 1}
    if kind == "encoder":
        shape["head"] = {"kind": "none"}
    model = build(configure(None, **shape)).train(training)
    tokens = torch.randint(20, (2, 5))
    real = torch.ones(2, 5, dtype=torch.bool) if padded else None
    inputs = (tokens, tokens, real) if kind == "encoder-decoder" else (tokens, real)
    model(*inputs)  # tables are made once
    return read(lambda: model(*inputs), Path(clearhead.__file__).parent)


def source(path: Path) -> Any:
    """A public model file, loaded from a clone."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def nanogpt(folder: Path) -> Read:
    module = source(folder / "model.py")
    model = module.GPT(module.GPTConfig(block_size=8, vocab_size=20, n_layer=1, n_head=2, n_embd=16)).eval()
    return read(lambda: model(torch.randint(20, (2, 5))), folder)


def whisper(folder: Path) -> Read:
    sys.path.insert(0, str(folder))
    module: Any = import_module("whisper.model")
    model = module.Whisper(module.ModelDimensions(8, 6, 16, 2, 1, 20, 8, 16, 2, 1)).eval()
    return read(lambda: model(torch.randn(2, 8, 12), torch.randint(20, (2, 5))), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", choices=["decoder", "encoder-decoder", "encoder"], help="print the lines as well")
    parser.add_argument("--kernels", choices=["plain", "fused"], default="fused")
    parser.add_argument("--peers", nargs="*", type=Path, default=[], help="folders of nanoGPT and whisper clones")
    chosen = parser.parse_args()
    print("One layer, one forward pass, evaluation:")
    for kind in ("decoder", "encoder-decoder", "encoder"):
        for kernels in ("fused", "plain"):
            for padded in (False, True):
                show(f"{kind}, {kernels}{', padded' * padded}", ours(kind, kernels, padded))
    for folder in chosen.peers:
        peer = whisper if (folder / "whisper").is_dir() else nanogpt
        show(folder.name, peer(folder.resolve()))
    if chosen.show:
        for file, number in ours(chosen.show, chosen.kernels, True).lines:
            line = Path(file).read_text().splitlines()[number - 1]
            print(f"{Path(file).name:>20}:{number:<4} {line}")


if __name__ == "__main__":
    main()
