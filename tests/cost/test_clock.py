"""What is measured agrees with what is counted; how long it took is nobody's assertion."""

import torch

from clearhead.cost.account import Size, account, total
from clearhead.cost.clock import BACKWARD, FORWARD, MARK, Measured, Use, measure, replay
from clearhead.cost.parts import Part
from clearhead.model import configure

SIZE = Size(batch=4, length=40)
CONFIG = configure("tiny", vocab_size=500, encoder_layers=1, decoder_layers=2)


def test_allocations_are_added_up_in_the_order_of_time() -> None:
    one, two = Part("", "head"), Part("", "norms")
    rows = [
        {"name": f"{MARK}1", "ts": 5.0},
        {"name": "[memory]", "ts": 2.0, "args": {"Bytes": 100}},
        {"name": "[memory]", "ts": 3.0, "args": {"Bytes": -30}},
        {"name": f"{MARK}0", "ts": 1.0},
        {"name": "aten::empty", "ts": 1.5},
        {"name": "[memory]", "ts": 7.5, "args": {"Bytes": -7}},
        {"name": "[memory]", "ts": 6.5, "args": {"Bytes": 7}},
    ]
    assert replay(rows, [(FORWARD, one), (BACKWARD, two)]) == {
        (FORWARD, one): Use(peak=100, kept=70),
        (BACKWARD, two): Use(peak=77, kept=0),
    }


def test_measured_memory_is_what_was_counted() -> None:
    profile = measure(CONFIG, SIZE, rounds=1)
    costs = account(CONFIG, SIZE)
    whole = sum(profile.parts.values(), Measured())
    ids = 2 * SIZE.batch * SIZE.length * 8  # kept as well, but they were there before the pass
    held = total(costs.values()).activation_bytes - ids
    # beyond the saved tensors a pass leaves only scraps: positions, a mask, the table of sinusoids
    assert held <= whole.forward_kept_bytes < 1.02 * held
    assert whole.forward_peak_bytes >= whole.forward_kept_bytes
    gradients = 4 * total(costs.values()).parameters
    assert whole.backward_peak_bytes > gradients
    head = profile.parts[Part("", "head")]
    logits = 4 * SIZE.batch * SIZE.length * 500
    # whatever runs last gives the positions back, which another part had made
    assert 0.99 * logits < head.forward_kept_bytes < 1.01 * logits


def test_every_part_that_computes_is_timed_both_ways() -> None:
    profile = measure(CONFIG, SIZE, rounds=2)
    working = {part for part, cost in account(CONFIG, SIZE).items() if cost.forward_flops or part.group == "norms"}
    assert working <= profile.parts.keys()
    for part in working:
        assert profile.parts[part].forward_seconds > 0
        assert profile.parts[part].backward_seconds > 0
    assert profile.forward_seconds > 0
    assert profile.backward_seconds > 0


def test_measuring_leaves_the_caller_s_random_numbers_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    measure(CONFIG, SIZE, rounds=1)
    assert torch.equal(torch.rand(3), wanted)


def test_sums_take_the_higher_peak() -> None:
    assert Measured(1, 2, 3, 4, 5) + Measured(10, 20, 30, 3, 50) == Measured(11, 22, 33, 4, 50)
