"""Beginning from weights: what fits is taken, tokens are matched by what they spell, and the rest is said."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from bench.faults.hostile import tensors
from clearhead.data import DataSettings, TokenizerSettings
from clearhead.errors import InputError
from clearhead.model import build, configure
from clearhead.run import Run
from clearhead.tokenizer import Characters
from clearhead.training.config import Recipe, TrainingSettings
from clearhead.training.loop import Loop
from clearhead.training.optimizer import height
from clearhead.training.session import train
from clearhead.training.transfer import copy_rows, fate_lines, take_over, with_body
from tests.decoding.models import opinionated, write_run
from tests.training import small


def test_rows_follow_their_tokens_into_another_vocabulary() -> None:
    old, new = Characters("abc"), Characters("xbca", special=("<s>", "<pad>", "</s>", "<unk>"))
    theirs = torch.arange(old.size * 2.0).view(-1, 2)
    tensor = torch.full((new.size, 2), -1.0)
    assert copy_rows(tensor, theirs, new, old) == "7 of 8 tokens taken, the rest new"
    for text in "abc":
        assert tensor[new.encode_ordinary(text)[0]].equal(theirs[old.encode_ordinary(text)[0]])
    for name in ("<s>", "<pad>", "</s>", "<unk>"):
        assert tensor[new.special[name]].equal(theirs[old.special[name]])
    assert tensor[new.encode_ordinary("x")[0]].tolist() == [-1, -1]


def test_disjoint_vocabularies_share_nothing_but_their_marks() -> None:
    old, new = Characters("abc"), Characters("xyz")
    tensor = torch.full((new.size, 2), -1.0)
    assert copy_rows(tensor, torch.zeros(old.size, 2), new, old) == "4 of 7 tokens taken, the rest new"
    bare = Characters("xyz", special=())
    with_unknown = torch.full((bare.size, 2), -1.0)
    assert copy_rows(with_unknown, torch.zeros(old.size, 2), bare, old) == "new: none of its 3 tokens is there"
    assert with_unknown.eq(-1).all()


def test_what_does_not_fit_is_named_in_one_table(tmp_path: Path) -> None:
    old = Characters("abc")
    sizes: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 32, "kind": "encoder", "vocab_size": old.size}
    theirs = opinionated(1, **sizes, encoder_layers=2, head={"kind": "tokens", "classes": 5, "bias": False}).float()
    run = Run(write_run(tmp_path / "run", theirs, old))
    ours = build(configure("tiny", **sizes, encoder_layers=3, head={"kind": "pooled", "classes": 5}))
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    fates = {fate.name: fate.what for fate in take_over(ours, old, None, run)}
    for name, tensor in ours.state_dict().items():
        wanted = theirs.state_dict()[name] if fates[name] == "taken" else before[name]
        assert tensor.equal(wanted), name
    assert fates["encoder.layers.1.feed_forward.inner.weight"] == "taken"
    assert fates["encoder.layers.2.feed_forward.inner.weight"] == "new: there is no such tensor there"
    assert fates["output.classify.weight"] == "taken"
    lines = fate_lines(take_over(ours, old, None, run))
    assert any("output.transform.weight" in line and "16×16" in line for line in lines)
    wide = build(configure("tiny", **{**sizes, "d_model": 32}, head={"kind": "pooled", "classes": 3}))
    with pytest.raises(InputError, match="not one matrix fits"):
        take_over(wide, old, None, run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda tensor: tensor[:, :1].contiguous(),
            r"embedding\.weight' has shape \(\d+, 1\), the configuration wants",
        ),
        (lambda tensor: tensor / 0, "embedding.weight' has values that are not finite"),
        (lambda tensor: tensor.long(), "embedding.weight' is of torch.int64, not floats"),
    ],
)
def test_weights_that_are_not_what_their_run_says_are_refused(change: Any, said: str, tmp_path: Path) -> None:
    """Not taken for tensors of other sizes, of which what fits is taken."""
    letters = Characters("abc")
    shape: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 32, "kind": "decoder", "vocab_size": letters.size}
    run = write_run(tmp_path / "run", opinionated(1, **shape).float(), letters)
    tensors(next(run.glob("checkpoints/*/model.safetensors")), lambda found: found.update(
        {"embedding.weight": change(found["embedding.weight"])}
    ))  # fmt: skip
    with pytest.raises(InputError, match=rf"model\.safetensors does not fit .*{said}"):
        take_over(build(configure("tiny", **shape)), letters, None, Run(run))


def test_embeddings_follow_their_tokens_and_not_their_ids(tmp_path: Path) -> None:
    old, new = Characters("abc"), Characters("cba")
    shape: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 32, "kind": "decoder", "vocab_size": old.size}
    theirs = opinionated(1, **shape).float()
    ours = build(configure("tiny", **shape))
    take_over(ours, new, None, Run(write_run(tmp_path / "run", theirs, old)))
    for text in "abc":
        (mine,), (other,) = new.encode_ordinary(text), old.encode_ordinary(text)
        assert ours.embedding.weight[mine].equal(theirs.embedding.weight[other])


def test_a_tokenizer_of_another_run_is_refused(tmp_path: Path) -> None:
    """Else rows would be taken for tokens that they never stood for."""
    letters = Characters("abc")
    shape: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 32, "kind": "decoder", "vocab_size": letters.size}
    run = write_run(tmp_path / "run", opinionated(1, **shape).float(), letters)
    Characters("xyabc").save(run / "tokenizer.json")
    with pytest.raises(InputError, match=r"tokenizer\.json: the tokenizer has 9 tokens, the model only 7"):
        take_over(build(configure("tiny", **shape)), letters, None, Run(run))


def labelled(tmp_path: Path, **training: Any) -> Recipe:
    lines = [f"{'abc'[n % 3] * (n % 4 + 1)} {n % 2}\t{'odd' if n % 2 else 'even'}" for n in range(80)]
    (tmp_path / "data.tsv").write_text("\n".join(lines) + "\n")
    usual: dict[str, Any] = {"steps": 12, "max_tokens": 100, "peak": 1e-3, "warmup": 2, "threads": 1}
    settings = TrainingSettings(**{**usual, "checkpoint_every": 4, **training})
    return Recipe(DataSettings(labelled=str(tmp_path / "data.tsv")), {}, TokenizerSettings(), settings)


@pytest.fixture
def body(tmp_path: Path) -> Path:
    tokenizer = Characters("abc 01")
    model = opinionated(
        2, kind="encoder", vocab_size=tokenizer.size, head={"kind": "masked", "bias": True}, encoder_layers=2
    ).float()
    return write_run(tmp_path / "body", model, tokenizer)


def test_a_recipe_without_a_model_takes_body_and_tokenizer(tmp_path: Path, body: Path) -> None:
    outcome = train(labelled(tmp_path, steps=1, peak=1e-9), tmp_path / "run", quiet=True, start=body)
    ours, theirs = outcome.run.weights("latest"), Run(body).weights()
    assert outcome.run.tokenizer().to_json() == Run(body).tokenizer().to_json()
    name = "encoder.layers.1.self_attention.query.weight"
    assert torch.allclose(ours[name], theirs[name], atol=1e-6)
    assert torch.allclose(ours["embedding.weight"], theirs["embedding.weight"], atol=1e-6)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "output.classify.weight" in log
    assert "left behind" in log


def test_an_encoder_leaves_the_decoder_of_a_translator_behind(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "encoder_layers": 3, "decoder_layers": 2}
    (tmp_path / "config.toml").write_text(tomli_w.dumps({"model": sizes}))
    start = Run(tmp_path)
    assert with_body(labelled(tmp_path), start).model == {"d_model": 16, "encoder_layers": 3}
    pairs = Recipe(DataSettings(source="a", target="b"))
    assert with_body(pairs, start).model == sizes


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_frozen_layers_stay_and_resuming_is_bit_exact(optimizer: str, tmp_path: Path, body: Path) -> None:
    changes = {"freeze": ("embedding.*", "encoder.layers.0.*"), "layer_decay": 0.5, "optimizer": optimizer}
    whole = train(labelled(tmp_path, **changes), tmp_path / "whole", quiet=True, start=body)

    def stop(loop: Loop) -> None:
        if loop.progress.step == 5:
            loop.stop = "enough"

    broken = labelled(tmp_path, **changes)
    train(broken, tmp_path / "parts", quiet=True, start=body, attach=lambda splits, log: [stop])
    again = train(broken, tmp_path / "parts", quiet=True, start=body)
    first, second, theirs = whole.run.weights("latest"), again.run.weights("latest"), Run(body).weights()
    for name, tensor in first.items():
        assert tensor.equal(second[name]), name
        if name.startswith(("embedding.", "encoder.layers.0.")):
            assert tensor.equal(theirs[name]), name
        elif name.startswith("encoder.layers.1.") and name.endswith("weight"):
            assert not tensor.equal(theirs[name]), name


def test_lower_layers_have_lower_rates() -> None:
    model = small.model()
    settings = TrainingSettings(steps=4, max_tokens=96, schedule="constant", peak=1.0, warmup=1, layer_decay=0.5)
    loop = Loop(model, small.splits().train, settings)
    loop.one_update()
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(p)]: g["lr"] for o in loop.optimizers for g in o.param_groups for p in g["params"]}
    assert rates.keys() == dict(model.named_parameters()).keys()
    assert rates["embedding.weight"] == 0.125  # below the encoder's layer, which is below the decoder's
    assert rates["encoder.layers.0.feed_forward.inner.weight"] == 0.25
    assert rates["decoder.layers.0.feed_forward.inner.weight"] == 0.5
    assert rates["decoder.norm.weight"] == 1.0
    assert height(model, "output.bias") == 0


@pytest.mark.parametrize(
    ("pattern", "said"), [("nothing.*", "no parameter is called 'nothing"), ("*", "leaves nothing to train")]
)
def test_a_pattern_that_freezes_nothing_or_all_is_refused(pattern: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        train(small.recipe(freeze=(pattern,)), tmp_path / "run", quiet=True)
