"""llama2.c's flat file (karpathy/llama2.c, `export.py`, version 0): seven int32 sizes, then float32 tensors in a fixed
order without names. Each kind of tensor holds all layers, one after the other.
"""

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.interop.weights import build_with
from clearhead.model import ModelConfig, Transformer, configure
from clearhead.reading import read_whole

HEADER = struct.Struct("<7i")

# the order of the file, with shapes in letters: D width, F feed-forward, K = G·d, V vocabulary, P positions, d = D/H
ORDER = (
    ("embedding.weight", "VD"),
    ("decoder.layers.{n}.self_attention_residual.norm.weight", "D"),
    ("decoder.layers.{n}.self_attention.query.weight", "DD"),
    ("decoder.layers.{n}.self_attention.key.weight", "KD"),
    ("decoder.layers.{n}.self_attention.value.weight", "KD"),
    ("decoder.layers.{n}.self_attention.out.weight", "DD"),
    ("decoder.layers.{n}.feed_forward_residual.norm.weight", "D"),
    ("decoder.layers.{n}.feed_forward.gate.weight", "FD"),
    ("decoder.layers.{n}.feed_forward.outer.weight", "DF"),
    ("decoder.layers.{n}.feed_forward.inner.weight", "FD"),
    ("decoder.norm.weight", "D"),
    ("", "Pd"),  # RoPE's cosines and sines, which we compute ourselves
    ("output.weight", "VD"),  # only where the head is not tied
)


def read(path: str | Path) -> Transformer:
    """The model of a flat file."""
    content = read_whole(path)
    if len(content) < HEADER.size:
        raise InputError(f"{path}: {len(content)} bytes are too few for the header of {HEADER.size}")
    header = HEADER.unpack_from(content)
    try:
        config = describe(header)
    except InputError as error:
        raise InputError(f"{path}: not a llama2.c file, its header is {header}: {error}") from None
    shared = config.key_value_heads * config.d_head
    sizes = {"D": config.d_model, "F": config.d_ff, "K": shared, "V": config.vocab_size, "d": config.d_head}
    sizes["P"] = header[6]
    # counted before anything is built: the header of some other file may ask for any amount of memory
    entries = [(name, [sizes[letter] for letter in shape]) for name, shape in ORDER]
    if config.head.tied:
        entries.pop()
    layers = config.decoder_layers
    wanted = 4 * sum(math.prod(shape) * (layers if "{n}" in name else 1) for name, shape in entries)
    found = len(content) - HEADER.size
    if found != wanted:
        raise InputError(f"{path}: its header {header} asks for {wanted} bytes after it, found {found}")
    numbers = torch.frombuffer(bytearray(content[HEADER.size :]), dtype=torch.float32)
    weights: dict[str, Tensor] = {}
    for name, shape in entries:
        copies = [name.format(n=n) for n in range(layers)] if "{n}" in name else [name]
        count = len(copies) * math.prod(shape)
        weights.update(zip(copies, numbers[:count].view(len(copies), *shape), strict=True))
        numbers = numbers[count:]
    weights.pop("")
    return build_with(config, weights)


def describe(header: tuple[int, ...]) -> ModelConfig:
    """The configuration of a header: D, feed-forward width, layers, H, G, V (negative: untied head), context."""
    width, inner, layers, heads, groups, vocabulary, _ = header
    return configure(
        "llama",
        vocab_size=abs(vocabulary),
        d_model=width,
        heads=heads,
        kv_heads=groups,
        d_ff=inner,
        decoder_layers=layers,
        positions={"layout": "interleaved"},
        head={"tied": vocabulary > 0},
    )
