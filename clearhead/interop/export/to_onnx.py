"""ONNX graphs, for onnxruntime and whatever else reads them: any batch, any length.

An encoder-decoder becomes two graphs, since a source is read once and a target written token by token; the other kinds
are one. Which inputs and outputs they have, and a program that uses them, is written into the README beside.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.decoding.load import LoadedModel, load
from clearhead.errors import InputError
from clearhead.interop.export.card import card, usage
from clearhead.interop.export.follow import Followed, refuse_beyond
from clearhead.interop.export.marks import end_of_text, forbidden_marks, runs_of, spare_rows
from clearhead.interop.export.onnx_graphs import Continue, Decode, Encode, Read, exportable
from clearhead.interop.export.tokenizer_json import tokenizer_files
from clearhead.model import ModelConfig
from clearhead.run import Run

OPSET = 20
FOLLOWED: Followed = {
    **dict.fromkeys(("kind", "kv_heads", "activation", "bias", "window", "head.kind", "head.tied", "head.bias")),
    **dict.fromkeys(("head.classes", "embedding.scaled", "embedding.norm", "embedding.segments")),
    **dict.fromkeys(("positions.kind", "positions.layout", "positions.base", "positions.max_length")),
    **dict.fromkeys(("source_vocab_size", "head_dim", "qkv_bias", "qk_norm", "positions.start")),
    **dict.fromkeys(f"positions.scaling.{key}" for key in ("kind", "factor", "low", "high", "context")),
    **dict.fromkeys(("norm.kind", "norm.placement", "norm.epsilon", "norm.final")),
}


@dataclass(frozen=True)
class Graph:
    """One file: the module, its inputs by name with the axes that may vary, and the names of its outputs."""

    module: torch.nn.Module
    inputs: dict[str, tuple[Tensor, dict[int, str]]]
    outputs: list[str]


def write(run: Run, checkpoint: str, folder: Path) -> str:
    """One or two graphs, `tokenizer.json` and a README; returns how they are used."""
    refuse_beyond(run.model_config, "the ONNX export", FOLLOWED)
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch's exporter is written in it)
    except ImportError:
        raise InputError("--to onnx needs onnx and onnxscript: pip install 'clearhead[export]'") from None
    loaded = load(run.path, checkpoint, "cpu")
    texts = tokenizer_files(loaded)
    for name, graph in graphs(exportable(loaded.model)).items():
        with quietly():
            program = torch.onnx.export(
                graph.module.eval(),
                tuple(example for example, _ in graph.inputs.values()),
                input_names=list(graph.inputs),
                output_names=graph.outputs,
                dynamic_shapes={name: axes for name, (_, axes) in graph.inputs.items()},
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            program.save(folder / f"{name}.onnx")
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    program_name = f"ONNX (opset {OPSET}, written with onnx {onnx.__version__} and torch {torch.__version__})"
    (folder / "README.md").write_text(card(run, checkpoint, program_name, described(loaded)), encoding="utf-8")
    return "used as in DIR/README.md, by onnxruntime.InferenceSession"


@contextmanager
def quietly() -> Iterator[None]:
    """The exporter talks of things that its caller can do nothing about."""
    talker = logging.getLogger("torch.onnx")
    level = talker.level
    talker.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        talker.setLevel(level)


def graphs(model: Any) -> dict[str, Graph]:
    """The graphs of a model by the names of their files, with examples of their inputs."""
    config: ModelConfig = model.config
    tokens, real = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)
    if config.kind == "encoder":
        axes = {0: "batch", 1: "length"}
        inputs = {"tokens": (tokens, axes), "real": (real, axes)}
        return {"model": Graph(Read(model), inputs, ["hidden", "output"])}
    past = {1: "batch", 3: "past"}

    def kept(length: int) -> Tensor:  # always a new one: of two inputs that are one tensor, a graph would have one
        return torch.zeros(config.decoder_layers, 2, config.key_value_heads, length, config.d_head)

    cache = {"past_keys": (kept(5), past), "past_values": (kept(5), past)}
    if config.kind == "decoder":
        seen = (torch.ones(2, 8, dtype=torch.bool), {0: "batch", 1: "seen"})
        inputs = {"tokens": (tokens, {0: "batch", 1: "length"}), "real": seen, **cache}
        return {"model": Graph(Continue(model), inputs, ["logits", "keys", "values"])}
    axes, memory = {0: "batch", 1: "source"}, {1: "batch", 3: "source"}
    ids, shown = torch.zeros(2, 4, dtype=torch.long), torch.ones(2, 4, dtype=torch.bool)
    reading: dict[str, Any] = {"source": (ids, axes), "source_real": (shown, axes)}
    writing: dict[str, Any] = {
        "target": (tokens, {0: "batch", 1: "length"}),
        "source_real": (shown, axes),
        "memory_keys": (kept(4), memory),
        "memory_values": (kept(4), memory),
        **cache,
    }
    return {
        "encoder": Graph(Encode(model), reading, ["memory_keys", "memory_values"]),
        "decoder": Graph(Decode(model), writing, ["logits", "keys", "values"]),
    }


def described(loaded: LoadedModel) -> str:
    """What goes in and what comes out, and a program that writes greedily with it."""
    config, tokenizer = loaded.model.config, loaded.tokenizer
    numbers = {
        "layers": config.decoder_layers,
        "G": config.key_value_heads,
        "d": config.d_head,
        "V": config.vocab_size,
        "D": config.d_model,
        "longest": f"up to {room} tokens" if (room := config.positions.max_length) else "of any length",
        "never": runs_of(sorted([*forbidden_marks(loaded), *spare_rows(loaded)])),
        "start": tokenizer.bos_id,
        "end": end_of_text(loaded),
        "more": loaded.settings.max_extra if config.kind == "encoder-decoder" else loaded.settings.max_tokens,
        "head": config.head.kind,
        "target": "tokenizer" if config.source_vocab_size is None else "target_tokenizer",
    }
    return usage(f"onnx_{config.kind}", numbers)
