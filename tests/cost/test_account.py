"""The account against torch's own counters on real passes, and against the formulas of a textbook."""

import subprocess
import sys
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead.cost.account import Cost, Size, account, count, parameters, total
from clearhead.cost.parts import GROUPS, PIECES, Part
from clearhead.errors import InputError
from clearhead.model import PRESETS, KVCache, ModelConfig, build, configure, count_parameters

SMALL: dict[str, Any] = {"vocab_size": 89, "d_model": 24, "heads": 4, "d_ff": 56}
DECODER = SMALL | {"kind": "decoder", "decoder_layers": 2}
BERT = {"kind": "masked", "bias": True}

# between them: every kind of model, position, norm, activation, head and place of dropout
CONFIGS = {
    "paper": ModelConfig(**SMALL, encoder_layers=1, decoder_layers=2),
    "grouped-rope-swiglu": configure("llama", **DECODER, kv_heads=2),
    "alibi-everything-dropped": configure(
        **DECODER, positions={"kind": "alibi"}, dropout={"attention": 0.2, "hidden": 0.1}, norm={"placement": "pre"}
    ),
    "window-untied": configure(
        **DECODER, window=5, head={"tied": False, "bias": True}, positions={"kind": "none"}, activation="silu"
    ),
    "masked-tokens": configure("bert-base", **SMALL, encoder_layers=2, head=BERT),
    "pooled-classes": configure("bert-base", **SMALL, encoder_layers=2, head={"kind": "pooled", "classes": 3}),
}


def real_pass(config: ModelConfig, size: Size) -> tuple[int, int, int]:
    """FLOPs forward and backward, and bytes kept, of a pass on real tensors; written apart from the code it checks."""
    torch.manual_seed(0)
    model = build(config).train()
    inputs = size.inputs(config)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own:
            kept[address] = tensor
        return tensor

    counter = FlopCounterMode(display=False)
    with counter:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = model(*inputs)
        forward = counter.get_total_flops()
        note(output)
        held = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        output.sum().backward()
    return forward, counter.get_total_flops() - forward, held


@pytest.mark.parametrize(("kernels", "length"), [("plain", 19), ("fused", 19), ("fused", 70)])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_account_is_what_a_real_pass_costs(name: str, kernels: Literal["plain", "fused"], length: int) -> None:
    config = replace(CONFIGS[name], kernels=kernels)
    size = Size(batch=3, length=length, source_length=length - 6)
    counted = total(account(config, size).values())
    forward, backward, held = real_pass(config, size)
    assert counted.activation_bytes == held
    if kernels == "plain":  # torch's counter does not know the tiled kernel of the CPU
        assert (counted.forward_flops, counted.backward_flops) == (forward, backward)
    else:
        plain = total(account(replace(config, kernels="plain"), size).values())
        assert counted.forward_flops == plain.forward_flops


def test_every_part_of_the_paper_s_model_costs_what_the_formulas_say() -> None:
    config = configure("base", kernels="plain", dropout=0.0)
    size = Size(batch=2, length=30, source_length=20)
    costs = account(config, size)
    d, f, v, layers, (source, target) = 512, 2048, 37_000, 6, (2 * 20, 2 * 30)
    square = d * d + d

    def check(stack: str, group: str, name: str, parameters: int, flops: int, saved: int | None = None) -> None:
        cost = costs[Part(stack, group, name)]
        assert (cost.parameters, cost.forward_flops) == (layers * parameters, layers * flops), (stack, group, name)
        if saved is not None:
            assert cost.activation_bytes == 4 * layers * saved, (stack, group, name)

    for stack, group, queries, keys, pairs in (
        ("encoder", "self-attention", source, source, 2 * 8 * 20 * 20),
        ("decoder", "self-attention", target, target, 2 * 8 * 30 * 30),
        ("decoder", "cross-attention", target, source, 2 * 8 * 30 * 20),
    ):
        check(stack, group, "query", square, 2 * queries * d * d, queries * d)
        check(stack, group, "key", square, 2 * keys * d * d)
        check(stack, group, "value", square, 2 * keys * d * d)
        check(stack, group, "mixing", 0, 2 * (2 * pairs * 64))
        check(stack, group, "out", square, 2 * queries * d * d, queries * d)
    for stack, tokens in (("encoder", source), ("decoder", target)):
        check(stack, "feed-forward", "inner", d * f + f, 2 * tokens * d * f, tokens * d)
        check(stack, "feed-forward", "outer", f * d + d, 2 * tokens * d * f, tokens * f)
    check("encoder", "norms", "", 2 * 2 * d, 0)
    check("decoder", "norms", "", 3 * 2 * d, 0)
    assert costs[Part("", "embedding")].parameters == v * d
    assert costs[Part("", "head")].parameters == 0  # tied
    assert costs[Part("", "head")].forward_flops == 2 * target * d * v
    assert costs[Part("", "head")].activation_bytes == 4 * (target * d + target * v)  # its input and the logits
    for part, cost in costs.items():  # of every matrix product, two of the same size come back
        assert cost.backward_flops == 2 * cost.forward_flops, part


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_counted_whole(preset: str) -> None:
    config = configure(preset)
    with torch.device("meta"):
        counts = parameters(build(config))
    assert sum(counts.values()) == count_parameters(config)
    assert all(part.group in GROUPS and part.name in PIECES for part in counts)


def test_the_cache_is_as_large_as_the_real_one() -> None:
    size = Size(batch=3, length=17, source_length=11)
    for name in ("paper", "grouped-rope-swiglu"):
        config = CONFIGS[name]
        model, cache = build(config).eval(), KVCache(config, size.batch, capacity=size.length)
        with torch.no_grad():
            if config.kind == "encoder-decoder":
                source, target = size.inputs(config)
                model.decode(target, model.encode(source), cache=cache)  # type: ignore[operator]
            else:
                model(*size.inputs(config), cache=cache)
        assert total(account(config, size).values()).cache_bytes == cache.bytes()
    assert total(account(CONFIGS["pooled-classes"], size).values()).cache_bytes == 0


def test_attention_weights_leave_the_account_with_the_fused_kernel() -> None:
    mixing = Part("decoder", "self-attention", "mixing")
    config = configure("gpt2", decoder_layers=2, dropout={"attention": 0.0})
    short, long = Size(batch=1, length=256), Size(batch=1, length=512)
    fused = [account(config, size)[mixing].activation_bytes for size in (short, long)]
    config = replace(config, kernels="plain")
    plain = [account(config, size)[mixing].activation_bytes for size in (short, long)]
    assert fused[1] == 2 * fused[0]  # in proportion to the length
    assert plain[1] > 3 * plain[0]  # nearly to its square


def test_the_largest_preset_is_counted_without_its_memory() -> None:
    """Real, this pass would hold more than twenty gigabytes; the process must stay under one."""
    program = (
        "from clearhead.cost.account import Size, account, total; from clearhead.model import configure\n"
        "from clearhead.machine import resident\n"
        "cost = total(account(configure('big', kernels='plain'), Size(batch=16, length=512)).values())\n"
        "print(cost.activation_bytes, resident(peak=True))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    activations, peak = map(int, done.stdout.split())
    assert activations > 20e9
    assert peak < 1e9


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="batch must be at least 1, not 0"):
        Size(batch=0)
    with pytest.raises(InputError, match="source-length must be at least 1, not -2"):
        Size(source_length=-2)
    with pytest.raises(InputError, match="a length of 1025 is past the model's 1024 learned positions"):
        account(configure("gpt2"), Size(batch=1, length=1025))


def test_costs_add_up() -> None:
    assert Cost(1, 2, 3, 4, 5) + Cost(10, 20, 30, 40, 50) == Cost(11, 22, 33, 44, 55)


@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("name", CONFIGS)
def test_layers_that_did_not_run_are_counted_as_if_they_had(name: str, kernels: Literal["plain", "fused"]) -> None:
    config = replace(CONFIGS[name], kernels=kernels)
    layers = {"encoder-decoder": (5, 3), "decoder": (0, 4), "encoder": (4, 0)}[config.kind]
    deep = replace(config, encoder_layers=layers[0], decoder_layers=layers[1])
    size = Size(batch=3, length=70, source_length=66)
    assert account(deep, size) == count(deep, size)


def test_one_layer_beside_many() -> None:
    config = ModelConfig(**SMALL, encoder_layers=1, decoder_layers=4)
    size = Size(batch=2, length=9, source_length=7)
    assert account(config, size) == count(config, size)


def test_counting_loads_no_compiler() -> None:
    """Which would take longer than the whole command; the shapes of all operations have to be known to shapes.py."""
    program = (
        "import sys; from clearhead.cost.account import account; from clearhead.cost.sheet import sheet\n"
        "from clearhead.model import PRESETS, configure\n"
        "for preset in PRESETS:\n"
        "    for kernels in ('plain', 'fused'): sheet(c := configure(preset, kernels=kernels)), account(c)\n"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
