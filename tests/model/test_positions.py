"""Positions: the paper's formula, what each kind promises about order and distance, and where it ends."""

import math

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.model.positions import (
    ADDED,
    Rotary,
    SinusoidalPositions,
    Table,
    alibi_bias,
    alibi_slopes,
    positions_in_documents,
    rotate,
    sinusoids,
    token_positions,
)
from tests.model.cases import POSITIONS
from tests.model.helpers import close, config, lengths_to_real, model, normal, tokens

LAYOUTS = ["interleaved", "split"]


def by_formula(length: int, width: int, layout: str) -> Tensor:
    """Section 3.5, one number at a time: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i + 1) = cos of the same."""
    table = torch.zeros(length, width, dtype=torch.float64)
    for position in range(length):
        for i in range(width // 2):
            angle = position / 10_000 ** (2 * i / width)
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
            table[position, sine], table[position, cosine] = math.sin(angle), math.cos(angle)
    return table


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sinusoids_are_the_papers(layout: str) -> None:
    close(sinusoids(50, 12, layout=layout), by_formula(50, 12, layout))


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_step_is_a_rotation(step: int) -> None:
    """PE(p + k) = R(k) PE(p) with one matrix R(k) for all p: what the paper chose sinusoids for."""
    width, table = 16, sinusoids(1300, 16)
    rotation = torch.zeros(width, width, dtype=torch.float64)
    for i in range(width // 2):
        angle = step / 10_000 ** (2 * i / width)
        block = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(block, dtype=torch.float64)
    close(table[step:], table[:-step] @ rotation.t(), 1e-9)
    close(rotation @ rotation.t(), torch.eye(width, dtype=torch.float64))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_products_depend_on_distance_only(layout: str) -> None:
    choice = config(d_model=16, heads=2, positions={"kind": "rope", "layout": layout})
    q, k, rotary = normal(8), normal(8, seed=1), Rotary(choice)
    at = torch.arange(300)[None]
    cos, sin = rotary(at, at, q)["rotation"]
    queries = rotate(q.expand(1, 1, 300, 8), cos, sin, layout)[0, 0]
    keys = rotate(k.expand(1, 1, 300, 8), cos, sin, layout)[0, 0]
    close(queries.norm(dim=-1), q.norm().expand(300))
    products = queries @ keys.t()
    for distance in (0, 1, 5, 100):
        along = products.diagonal(-distance)
        close(along, along[0].expand(len(along)), 1e-10)
    assert len({round(float(products[distance, 0]), 9) for distance in range(300)}) == 300
    close(queries[0], q)


def test_rotary_layouts_are_one_up_to_order() -> None:
    q = normal(1, 2, 9, 8)
    at = torch.arange(9)[None]
    cos, sin = Rotary(config(d_model=16, heads=2, positions="rope"))(at, at, q)["rotation"]
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # interleaved pairs, taken apart
    close(rotate(q, cos, sin, "interleaved")[..., order], rotate(q[..., order], cos, sin, "split"))
    first = rotate(q, cos, sin, "interleaved")[0, 0, 3, :2]  # dimensions 0 and 1 turn by one radian a position
    turn = torch.tensor([[math.cos(3), -math.sin(3)], [math.sin(3), math.cos(3)]], dtype=torch.float64)
    close(first, turn @ q[0, 0, 3, :2])


def test_rotary_base() -> None:
    slow = Rotary(config(d_model=16, heads=2, positions={"kind": "rope", "base": 1e6}))
    cos, _ = slow(torch.tensor([[5]]), torch.arange(6)[None], normal(1))["rotation"]
    close(cos.flatten(), torch.tensor([math.cos(5 * 1e6 ** (-i / 4)) for i in range(4)], dtype=torch.float64))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradcheck(layout: str) -> None:
    cos, sin = normal(1, 1, 3, 2), normal(1, 1, 3, 2, seed=1)
    assert torch.autograd.gradcheck(lambda x: rotate(x, cos, sin, layout), normal(2, 2, 3, 4, grad=True))


def test_alibi_slopes_are_the_papers() -> None:
    halves = [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(8).tolist() == halves
    close(alibi_slopes(16), torch.tensor([2.0 ** (-i / 2) for i in range(1, 17)], dtype=torch.float64))
    # 12 heads: the 8 of eight heads, then every second of sixteen
    close(alibi_slopes(12), torch.tensor([*halves, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], dtype=torch.float64))
    assert alibi_slopes(1).tolist() == [2.0**-8]
    for heads in range(1, 40):
        slopes = alibi_slopes(heads)
        assert len(slopes) == heads
        assert len(slopes.unique()) == heads


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 31])
def test_alibi_slopes_are_bloom_s(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 3, dtype=torch.long), heads, torch.float32)
    close(alibi_slopes(heads).float(), theirs[:, 0, 1], 1e-6)


def test_alibi_is_symmetric_where_both_directions_are_seen() -> None:
    at = torch.arange(5)[None]
    bias = alibi_bias(at, at, alibi_slopes(2))
    assert bias.shape == (1, 2, 5, 5)
    for i in range(5):
        for j in range(5):
            assert bias[0, :, i, j].tolist() == [-abs(i - j) / 16, -abs(i - j) / 256]


# ---- in a model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_only_without_positions_an_encoder_sees_a_set(positions: str, kernels: str) -> None:
    encoder, ids = model("encoder", positions=positions, kernels=kernels), tokens(2, 13)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    before, after = encoder(ids)[:, order], encoder(ids[:, order])
    if positions == "none":
        close(after, before)
    else:
        assert (after - before).abs().max() > 1e-3


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_repeated_token_shows_absolute_positions(positions: str) -> None:
    """In a text of one token the values are all alike, so relative positions have nothing to show; absolute ones do."""
    out = model("encoder", positions=positions)(torch.full((1, 9), 3))[0]
    spread = (out - out[0]).abs().max()
    assert spread > 1e-3 if positions in ("sinusoidal", "learned") else spread < 1e-12


@pytest.mark.parametrize("positions", [kind for kind in POSITIONS if kind not in ADDED])
def test_relative_positions_do_not_touch_cross_attention(positions: str) -> None:
    """The memory of a source without positions inside: its order must not matter to the decoder."""
    translator, ids = model("encoder-decoder", positions=positions), tokens(2, 7)
    memory, order = normal(2, 11, 24), torch.randperm(11)
    close(translator.decode(ids, memory), translator.decode(ids, memory[:, order]))


@pytest.mark.parametrize("positions", [kind for kind in POSITIONS if kind != "learned"])
@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_extends_past_any_length_it_has_seen(positions: str, kernels: str) -> None:
    """Tables grow on demand, and what a short pass built does not disturb a long one."""
    used, unused = (model(positions=positions, kernels=kernels) for _ in range(2))
    ids = tokens(1, 700)
    with torch.no_grad():
        for length in (5, 64, 65, 700, 3):
            assert torch.isfinite(used(ids[:, :length])).all()
        close(used(ids), unused(ids))


@pytest.mark.parametrize("positions", POSITIONS)
def test_trains_after_inference(positions: str) -> None:
    """A table that was made in inference mode must not end up in a graph that needs gradients."""
    built = model(positions=positions)
    with torch.inference_mode():
        built(tokens(1, 100))
    built(tokens(1, 100)).sum().backward()


def test_learned_positions_refuse_what_they_have_no_row_for() -> None:
    limited = model(positions={"kind": "learned", "max_length": 8})
    assert limited(tokens(2, 8)).shape == (2, 8, 29)
    with pytest.raises(clearhead.InputError, match=r"end at 8 tokens \(positions.max_length = 8\).* reaches 9"):
        limited(tokens(2, 9))
    # what counts are real tokens: padding takes no row
    limited(tokens(2, 12), lengths_to_real([8, 3], 12, "left"))
    cache = clearhead.KVCache(limited.config, 1)
    with torch.no_grad():
        limited(tokens(1, 6), cache=cache)
        with pytest.raises(clearhead.InputError, match="reaches 9"):
            limited(tokens(1, 3), cache=cache)


def test_positions_count_real_tokens() -> None:
    ids, real = tokens(3, 6), torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1]]).bool()
    counted = token_positions(ids, real)
    wanted = [[2, 3, 4, 5], [0, 1, 2], [0, 2, 3, 5]]
    for row, columns in enumerate(wanted):
        assert counted[row, columns].tolist() == list(range(len(columns)))
    documents = torch.tensor([[1, 1, 1, 2, 2, 2], [5, 6, 6, 6, 6, 7], [1, 1, 2, 2, 2, 2]])
    assert positions_in_documents(ids, None, documents).tolist() == [
        [0, 1, 2, 0, 1, 2],
        [0, 0, 1, 2, 3, 0],
        [0, 1, 0, 1, 2, 3],
    ]
    assert positions_in_documents(ids, real, documents)[2, [0, 2, 3, 5]].tolist() == [0, 0, 1, 2]


def test_table_grows_and_follows_its_user() -> None:
    made = []

    class Thirds(Table):
        def make(self, length: int) -> Tensor:
            made.append(length)
            return torch.arange(length, dtype=torch.float64)[:, None] / 3

    table = Thirds()
    for length in (*range(1, 1001), 40):
        assert len(table.upto(length, torch.zeros(1))) >= length
    assert len(made) <= 10  # one token after the other must not make a table each
    assert table.upto(5, torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32  # never 16 bits
    assert torch.equal(table.upto(5, torch.zeros(1, dtype=torch.float64))[:5], table.make(5))


@pytest.mark.parametrize("start", [1, 2])
def test_sinusoids_may_start_at_another_number(start: int) -> None:
    close(sinusoids(20, 12, start=start), sinusoids(20 + start, 12)[start:])
    shifted = clearhead.configure("tiny", vocab_size=9, d_model=12, heads=2, positions={"start": start})
    close(SinusoidalPositions(shifted).make(5), sinusoids(5 + start, 12)[start:])
    with pytest.raises(clearhead.InputError, match=r"positions\.start is for 'sinusoidal'"):
        clearhead.configure("llama", positions={"start": start})


@pytest.mark.parametrize(("preset", "changes"), [("tiny", {}), ("llama", {"kv_heads": 2})])
def test_an_export_leaves_no_trace(preset: str, changes: dict[str, int]) -> None:
    """`torch.export` runs the model on tensors without numbers; its tables must not stay behind in the real one, and
    the exported program must make its own at any length."""
    torch.manual_seed(0)
    config = clearhead.configure(preset, vocab_size=31, d_model=16, heads=2, d_ff=16, kernels="plain", **changes)
    model = clearhead.build(config).eval()
    short, long = (torch.randint(31, (2, length)) for length in (5, 90))
    inputs = (short, short) if preset == "tiny" else (short,)
    length = torch.export.Dim("length", min=2, max=512)
    other = torch.export.Dim("other", min=2, max=512)
    shapes = ({1: length}, {1: other}) if preset == "tiny" else ({1: length},)
    program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    assert all(
        module.rows is None or type(module.rows) is Tensor for module in model.modules() if isinstance(module, Table)
    )
    for ids in (short, long):
        given = tuple(ids for _ in inputs)
        close(program.module()(*given), model(*given), 1e-5)
