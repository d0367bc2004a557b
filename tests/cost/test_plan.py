"""The plan's memory against the account and the optimizer, its time against what others have published."""

import pytest

from clearhead.cost.account import Size, account, total
from clearhead.cost.devices import DEVICES, Device
from clearhead.cost.parts import Part
from clearhead.cost.plan import Model, advice, describe, largest_batch, memory, plan
from clearhead.errors import InputError
from clearhead.model import configure, count_parameters

SMALL = Device("small", 1e9, 1e12, 2e12, 1e9, "made up")
MODEL = Model(
    parameters=10_000_000, layer=1_000_000, outside=2_000_000, flops=6e9, activations=20e6, fixed=0.0, length=100
)


@pytest.mark.parametrize("preset", ["tiny", "gpt2", "bert-base"])
def test_a_model_is_described_by_its_account(preset: str) -> None:
    config = configure(preset)
    found = describe(config, 96, 80)
    costs = account(config, Size(7, 96, 80))
    whole = total(costs.values())
    assert found.parameters == count_parameters(config)
    assert 7 * found.flops == whole.forward_flops + whole.backward_flops
    kept = whole.activation_bytes - costs[Part("", "head")].activation_bytes
    assert found.fixed + 7 * found.activations == pytest.approx(kept, rel=1e-3)
    stacks = config.encoder_layers + config.decoder_layers
    assert found.outside < found.parameters
    assert found.layer * stacks >= found.parameters - found.outside


def test_ddp_holds_everything_and_fsdp_a_share() -> None:
    alone = memory(MODEL, 3, 1, "ddp", bits16=False)
    assert (alone.weights, alone.gradients, alone.optimizer) == (40e6, 40e6, 80e6)
    assert alone.activations == 60e6
    copies = memory(MODEL, 3, 4, "ddp", bits16=False)
    assert copies.total - alone.total == 40e6  # its buckets
    shards = memory(MODEL, 3, 4, "fsdp", bits16=False)
    assert (shards.weights, shards.gradients, shards.optimizer) == (10e6, 10e6, 20e6)
    assert shards.buffers - alone.buffers == 8 * 4_000_000  # outside the layers, and two layers
    assert memory(MODEL, 3, 1, "ddp", bits16=True).activations == 30e6


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("bits16", [True, False])
def test_the_largest_batch_fits_and_one_more_does_not(parallel: str, bits16: bool) -> None:
    batch = largest_batch(MODEL, SMALL, 4, parallel, bits16)  # type: ignore[arg-type]
    assert memory(MODEL, batch, 4, parallel, bits16).total <= SMALL.memory  # type: ignore[arg-type]
    assert memory(MODEL, batch + 1, 4, parallel, bits16).total > SMALL.memory  # type: ignore[arg-type]


def test_time_and_bytes_by_hand() -> None:
    made = plan(MODEL, 8000, SMALL, 4, "ddp", bits16=False, batch=5, utilisation=0.5)
    assert made.steps == 8000 / (5 * 4 * 100)
    assert made.compute_seconds == 5 * 6e9 / 0.5e12
    assert made.bytes_sent == pytest.approx(2 * 3 / 4 * 40e6)
    assert made.send_seconds == pytest.approx(0.06)
    assert made.seconds == pytest.approx(4 * max(0.06, 0.06))
    assert plan(MODEL, 8000, SMALL, 4, "fsdp", batch=5).bytes_sent == pytest.approx(3 * 3 / 4 * 40e6)
    assert plan(MODEL, 8000, SMALL, 1, "ddp", batch=5).bytes_sent == 0


# hours, and what they say of the share of the peak that was reached, if our FLOPs are right
PUBLISHED = [
    # section 5.2: 100,000 steps in 12 hours, 300,000 in 3.5 days; section 5.1: about 25,000 target tokens a step
    ("base", 25_000 * 100_000, "P100", 8, False, 64, 12.0, (0.24, 0.28)),
    ("big", 25_000 * 300_000, "P100", 8, False, 64, 84.0, (0.33, 0.38)),
    # nanoGPT's README and configuration: 600,000 steps of 491,520 tokens, about 4 days
    ("gpt2", 600_000 * 491_520, "A100-40", 8, True, 1024, 96.0, (0.27, 0.32)),
    # Llama 2 (Touvron et al., 2023, table 2): 2 T tokens in 184,320 hours of an A100
    ("llama2-7b", 2_000_000_000_000, "A100", 8, True, 4096, 184_320 / 8, (0.40, 0.46)),
]
LLAMA2 = {"d_model": 4096, "heads": 32, "kv_heads": 32, "d_ff": 11_008, "decoder_layers": 32, "vocab_size": 32_000}


@pytest.mark.parametrize(("preset", "tokens", "device", "count", "bits16", "length", "hours", "share"), PUBLISHED)
def test_published_trainings_reached_a_believable_share_of_the_peak(
    preset: str,
    tokens: int,
    device: str,
    count: int,
    bits16: bool,
    length: int,
    hours: float,
    share: tuple[float, float],
) -> None:
    model = describe(configure("llama", **LLAMA2) if preset == "llama2-7b" else configure(preset), length)
    at_peak = plan(model, tokens, DEVICES[device], count, "ddp", bits16, utilisation=1.0)
    assert share[0] < at_peak.seconds / 3600 / hours < share[1]


def test_what_to_change_is_said() -> None:
    large = Model(2_000_000_000, 50_000_000, 100_000_000, 6e12, 5e9, 0.0, 2048)
    a100 = DEVICES["A100"]
    plans = [plan(large, 1e9, DEVICES["T4"], 2, way) for way in ("ddp", "fsdp")]
    said = " ".join(advice(large, DEVICES["T4"], 2, plans, True))
    assert "not even one sequence of 2048 tokens fits into 16 GB" in said
    assert "shard over 4 devices" in said
    plans = [plan(large, 1e9, Device("d", 40e9, 1, 1, 1, ""), 4, way) for way in ("ddp", "fsdp")]
    assert "set training.parallel = 'fsdp'" in " ".join(advice(large, a100, 4, plans, True))
    slow = [plan(MODEL, 1e9, SMALL, 4, "ddp", bits16=False, batch=1, utilisation=1.0)]
    assert "accumulate 10 or more" in " ".join(advice(MODEL, SMALL, 4, slow, False))
    with pytest.raises(InputError, match="utilisation is a share of the peak"):
        plan(MODEL, 1e9, SMALL, 1, "ddp", utilisation=1.5)
    with pytest.raises(InputError, match="at least one device"):
        plan(MODEL, 1e9, SMALL, 0, "ddp")
