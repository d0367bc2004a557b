"""The trace: it sees everything, changes nothing, and reads back what it wrote."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.feedforward import FeedForward
from clearhead.model.heads import VocabularyHead
from clearhead.model.norm import LayerNorm
from clearhead.model.residual import Residual
from clearhead.model.trace import Trace, recording, tap
from tests.model.helpers import KINDS, close, lengths_to_real, model, normal, tokens

S, T = 5, 7
SIZES = {"B": 3, "S": S, "T": T, "D": 24, "H": 4, "G": 2, "d": 6, "d/2": 3, "F": 40, "V": 29, "C": 11}


def inputs(kind: str) -> tuple[Tensor, ...]:
    if kind == "encoder-decoder":
        return tokens(3, T), tokens(3, S, seed=1), lengths_to_real([T, 4, 2], T)
    return tokens(3, S), lengths_to_real([S, 4, 2], S)


def traced(kind: str, **changes: Any) -> tuple[Any, Trace, Tensor]:
    built = model(kind, kv_heads=2, **changes)
    with torch.no_grad(), clearhead.trace(built) as seen:
        logits = built(*inputs(kind))
    return built, seen, logits


# what the modules of a kind show, each under its own path
SHOWN: dict[type, tuple[str, ...]] = {
    MultiHeadAttention: ("q", "k", "v", "scores", "mask", "weights", "context", "output"),
    FeedForward: ("hidden", "output"),
    Residual: ("residual",),
    LayerNorm: ("norm",),
    TokenEmbedding: ("tokens", "positions", "embedding", "tokens#2", "positions#2", "embedding#2"),  # source, target
    VocabularyHead: ("logits",),
}


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_names_every_tensor_of_every_layer(placement: str) -> None:
    built, seen, _ = traced("encoder-decoder", norm={"placement": placement})
    modules = [(path, SHOWN[type(module)]) for path, module in built.named_modules() if type(module) in SHOWN]
    assert set(seen) == {f"{path}.{name}" for path, names in modules for name in names}
    assert list(seen)[-1] == "output.logits"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("encoder-decoder", {}),
        ("decoder", {}),
        ("decoder", {"norm": {"kind": "rms"}, "activation": "swiglu", "positions": "rope"}),
        ("decoder", {"positions": "alibi", "window": 3}),
        ("decoder", {"positions": "learned", "embedding": {"norm": True}}),
        ("encoder", {"head": {"kind": "masked"}, "embedding": {"segments": 2}}),
        ("encoder", {"head": {"kind": "tokens", "classes": 11}}),
        ("encoder", {"head": {"kind": "pooled", "classes": 11}}),
    ],
    ids=str,
)
def test_letters_are_the_shapes(kind: str, changes: dict[str, Any]) -> None:
    """Source and target have different lengths, so a wrong letter shows. A dimension of one stands for any."""
    _, seen, _ = traced(kind, **changes)
    assert len(seen) > 20
    for name in seen:
        sizes = dict(SIZES)
        if kind != "encoder-decoder":
            sizes["T"] = S
        elif name.startswith("encoder") or name in ("embedding.tokens", "embedding.positions", "embedding.embedding"):
            sizes["S"] = T
        elif "decoder" in name and ".self_attention" in name:
            sizes["T"] = S
        wanted = [sizes[letter] for letter in seen.letters[name].split()]
        assert len(wanted) == seen[name].dim(), name
        for found, size in zip(seen[name].shape, wanted, strict=True):
            assert found in (size, 1), f"{name}: {tuple(seen[name].shape)} is not {seen.letters[name]}"


@pytest.mark.parametrize("kind", KINDS)
def test_shows_the_computation_and_does_not_change_it(kind: str) -> None:
    built, seen, logits = traced(kind)
    with torch.no_grad():
        close(logits, built(*inputs(kind)))
    for path, weights in seen.named("weights").items():
        near = path.removesuffix("weights")
        scores, mask = seen[near + "scores"], seen[near + "mask"]
        close(weights, scores.masked_fill(~mask, float("-inf")).softmax(-1))
        values = seen[near + "v"].repeat_interleave(2, 1)
        close(seen[near + "context"], weights @ values)
    if kind != "encoder":
        close(seen["output.logits"], logits)


def test_tap_is_the_identity() -> None:
    x = normal(3, grad=True)
    assert tap("x", x) is x
    assert not recording()
    with clearhead.trace() as seen:
        assert tap("x", x, "B") is x
        assert recording()
        x.data += 1
        assert not torch.equal(seen["x"], x)  # a copy: what follows in place does not change it
        assert not seen["x"].requires_grad
    assert not recording()


def test_belongs_to_its_model_and_its_thread() -> None:
    """Another model in the same `with`, and the same model in another thread: neither recorded nor confused by it."""
    built, other = model(), model(seed=1)
    wanted = built(tokens(1, 3))
    inside, outside = threading.Barrier(2, timeout=30), list[Any]()

    def elsewhere() -> None:
        inside.wait()
        outside.append((recording(), built(tokens(1, 3))))
        with clearhead.trace(built) as theirs:
            built(tokens(2, 5))
        outside.append((len(theirs), theirs["embedding.tokens"].shape))
        inside.wait()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with clearhead.trace(built) as seen:
        other(tokens(1, 3))
        assert len(seen) == 0
        inside.wait()
        inside.wait()
        assert len(seen) == 0
        found = built(tokens(1, 3))
    thread.join()
    close(found, wanted)
    assert outside[0][0] is False
    assert torch.equal(outside[0][1], wanted)
    assert outside[1] == (len(seen), (2, 5, 24))
    assert seen["embedding.tokens"].shape == (1, 3, 24)


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_goes_on_with_what_a_tap_returns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each named tensor in turn comes back from its tap with another value: the result must change."""
    built = model(kind, encoder_layers=1, decoder_layers=1)
    with clearhead.trace(built) as seen:
        wanted = built(*inputs(kind))
    record = Trace.record
    for chosen in list(seen):

        def changed(self: Trace, name: str, tensor: Tensor, letters: str, chosen: str = chosen) -> Tensor:
            made = record(self, name, tensor, letters)
            if list(self)[-1] != chosen:
                return made
            return ~made if made.dtype == torch.bool else made + normal(*made.shape, seed=7)

        monkeypatch.setattr(Trace, "record", changed)
        with clearhead.trace(built):
            assert not torch.allclose(built(*inputs(kind)), wanted), f"{chosen} was tapped and then not used"


def test_lookup() -> None:
    _, seen, _ = traced("decoder")
    assert seen["logits"] is seen["output.logits"]  # the end of a path is enough where only one has it
    with pytest.raises(KeyError, match=r"several tensors end in it: decoder\.layers\.0\.self_attention\.weights"):
        seen["weights"]
    with pytest.raises(KeyError, match=r"no single tensor 'nonsense'; recorded: embedding\.tokens"):
        seen["nonsense"]


def test_ends_with_its_block() -> None:
    built = model()
    with (
        pytest.raises(clearhead.InputError, match="traces do not nest"),
        clearhead.trace(built),
        clearhead.trace(built),
    ):
        pass
    assert not recording()
    with pytest.raises(clearhead.InputError, match="token ids"), clearhead.trace(built) as seen:
        built(torch.tensor([[99]]))
    assert not recording()
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in built.modules())
    with clearhead.trace(built) as seen:  # a pass that failed half-way leaves no wrong path behind
        with pytest.raises(clearhead.InputError):
            built(torch.tensor([[99]]))
        built(tokens(1, 3))
    assert "embedding.tokens" in seen.tensors
    assert "output.logits" in seen.tensors


def test_saves_and_loads(tmp_path: Path) -> None:
    _, seen, _ = traced("encoder-decoder")
    path = tmp_path / "new" / "pass.safetensors"
    seen.save(path)
    read = Trace.load(path)
    assert list(read) == list(seen)  # in order
    assert read.letters == seen.letters
    for name in seen:
        assert torch.equal(read[name], seen[name])
    table = json.loads(Path(f"{path}.json").read_text())
    row = next(row for row in table["tensors"] if row["name"] == "decoder.layers.0.cross_attention.weights")
    assert row == {"name": row["name"], "letters": "B H S T", "shape": [3, 4, S, T], "dtype": "float64"}


def test_a_trace_is_saved_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = traced("decoder")[1]
    seen.save(tmp_path / "t")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(clearhead.InputError, match=r"cannot write .*/t: No space left on device"):
        traced("decoder")[1].save(tmp_path / "t")
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_refuses_what_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(clearhead.InputError, match=r"no trace at .*nothing"):
        Trace.load(tmp_path / "nothing")
    seen = traced("decoder")[1]
    seen.save(tmp_path / "t")
    (tmp_path / "t.json").write_text('{"format": "other"}')
    with pytest.raises(clearhead.InputError, match=r"t\.json: format 'other' is not 'clearhead-trace-1'"):
        Trace.load(tmp_path / "t")


@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
            ],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiles_whole(backend: str) -> None:
    """No graph break at a tap: the compiler sees straight through it."""
    torch._dynamo.reset()
    built, ids = model(decoder_layers=1).float(), tokens(2, 9)
    with torch.no_grad():
        close(torch.compile(built, fullgraph=True, backend=backend)(ids), built(ids), 1e-5)


# ---- edits on the way ----------------------------------------------------------------------------------------------


def test_an_edit_replaces_the_tensor_and_the_pass_goes_on_with_it() -> None:
    built = model("encoder-decoder")
    name = "decoder.layers.1.cross_attention.context"

    def silence(context: Tensor) -> Tensor:
        context[:, 2] = 0  # in place: an edit has a copy of its own
        return context

    with torch.no_grad(), clearhead.trace(built) as before:
        built(*inputs("encoder-decoder"))
    with torch.no_grad(), clearhead.trace(built, edit={name: silence}) as after:
        logits = built(*inputs("encoder-decoder"))
    earlier = list(before)[: list(before).index(name)]
    assert len(earlier) > 20
    assert all(torch.equal(before[one], after[one]) for one in earlier)
    assert after[name][:, 2].count_nonzero() == 0
    assert torch.equal(after[name][:, 1], before[name][:, 1])
    by_hand = built.decoder.layers[1].cross_attention.out(after[name].transpose(1, 2).flatten(-2))
    close(after["decoder.layers.1.cross_attention.output"], by_hand)
    assert not torch.allclose(logits, before["output.logits"])


def test_an_edit_meets_every_tensor_of_its_name_or_one_by_number() -> None:
    built = model("encoder-decoder")
    seen: list[tuple[str, int]] = []

    def note(what: str) -> Any:
        def change(tensor: Tensor) -> Tensor:
            seen.append((what, tensor.size(1)))
            return tensor

        return change

    edit = {
        name: note(name)
        for name in ("embedding.positions", "embedding.positions#2", "decoder.layers.*.self_attention.mask")
    }
    with torch.no_grad(), clearhead.trace(built, edit=edit) as taken:
        found = built(*inputs("encoder-decoder"))
    both, second, masks = edit
    assert [what for what, _ in seen] == [both, both, second, masks, masks]
    assert [length for _, length in seen[:3]] == [T, S, S]
    with torch.no_grad():
        close(found, built(*inputs("encoder-decoder")))  # edits that give back what they got change nothing
    assert len(taken) > 20


def test_activations_are_swapped_in_from_another_input() -> None:
    """With the last layer's state of another input, the output is the other's; so with all states of one position."""
    built = model("decoder")
    with torch.no_grad():
        with clearhead.trace(built) as other:
            wanted = built(tokens(3, S, seed=5))
        name = f"decoder.layers.{len(built.decoder.layers) - 1}.feed_forward_residual.residual"
        with clearhead.trace(built, edit={name: lambda _: other[name]}):
            close(built(tokens(3, S)), wanted)


def test_an_edit_is_refused_by_name() -> None:
    built = model("decoder")
    good, bad = "output.logits", "decoder.layers.0.attention.weights"
    unmet = r"no tensor to edit is called 'decoder\.layers\.0\.attention\.weights'; recorded: embedding\.tokens"
    with (
        pytest.raises(clearhead.InputError, match=unmet),
        clearhead.trace(built, edit={good: torch.neg, bad: torch.neg}),
    ):
        built(tokens(1, 3))
    wrong: tuple[tuple[Any, str], ...] = (
        (lambda t: t[:, :1], r"the edit of output\.logits gave torch\.float64 \(1, 1, 29\); wanted .* \(1, 3, 29\)"),
        (lambda t: t.half(), r"gave torch\.float16"),
        (lambda t: None, r"gave NoneType"),
    )
    for change, said in wrong:
        with pytest.raises(clearhead.InputError, match=said), clearhead.trace(built, edit={good: change}):
            built(tokens(1, 3))
        assert not recording()


def test_without_an_edit_a_trace_is_bit_for_bit_the_pass() -> None:
    built = model("decoder", kernels="plain")
    with torch.no_grad():
        wanted = built(tokens(2, 7))
        with clearhead.trace(built, edit={}):
            assert torch.equal(built(tokens(2, 7)), wanted)
        assert torch.equal(built(tokens(2, 7)), wanted)  # and leaves nothing behind
