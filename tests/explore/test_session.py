"""The contract with the page: what a session answers is what the model's own ways of writing and scoring give."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import InputError
from clearhead.explore import session as session_module
from clearhead.explore.requests import OfPass, PassRequest, TensorRequest
from clearhead.explore.session import KEPT, Session
from clearhead.explore.wire import unpack
from clearhead.explore.writing import draw
from clearhead.model import KVCache, trace
from clearhead.run import step_name, write_checkpoint
from clearhead.settings import from_dict
from tests.explore.runs import KINDS, read, small_session

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Session]:
    place = tmp_path_factory.mktemp("runs")
    return {kind: small_session(place / kind, kind) for kind in KINDS}


def tensors(session: Session, made: dict[str, Any], **wanted: Any) -> Any:
    asked = from_dict(TensorRequest, {"id": made["id"], "wanted": [wanted]})
    return next(iter(unpack(session.tensors(asked)).values()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_has_all_that_the_page_shows(kind: str, sessions: dict[str, Session]) -> None:
    session = sessions[kind]
    made, model = read(session, TEXT), session.model()
    json.dumps(made, allow_nan=False)
    json.dumps(model, allow_nan=False)
    assert len(made["rows"]) == len(made["answer"]) == len(made["scoring"]["log_probs"])
    assert len(made["predicted"]) == len(made["read"])
    if kind == "encoder":
        assert made["writing"] is None
        assert made["cache"] is None
        assert not made["read"]
    else:
        assert made["writing"]["ids"] == [token["id"] for token in made["answer"]]
        assert [made["predicted"][row]["id"] for row in made["rows"]] == made["writing"]["ids"]
        for token, top in zip(made["writing"]["log_probs"], made["writing"]["top"], strict=True):
            assert top[0]["p"] == pytest.approx(math.exp(token), rel=1e-4)  # greedy: the likeliest was written
    assert [one["at"] for one in made["attentions"]] == [one["at"] for one in model["attentions"]]
    assert all(len(one["entropy"]) == model["letters"]["H"] for one in made["attentions"])
    for row in made["tensors"]:
        whole = tensors(session, made, name=row["name"])
        assert list(whole.shape) == row["shape"]
        assert len(row["letters"].split()) == len(row["shape"])
        assert float(whole.float().max()) == pytest.approx(row["max"], rel=1e-5)


def test_writing_and_scoring_are_those_of_the_loaded_model(sessions: dict[str, Session]) -> None:
    session = sessions["encoder-decoder"]
    loaded, made = session.loaded(), read(session, TEXT)
    wanted = loaded.translate(TEXT, beam_size=1)[0]
    assert made["writing"]["text"] == wanted.text
    assert made["writing"]["log_probs"] == pytest.approx(wanted.log_probs, abs=1e-4)
    assert made["scoring"]["log_probs"] == pytest.approx(wanted.log_probs, abs=1e-4)
    beamed, best = read(session, TEXT, search={"kind": "beam", "beam_size": 3}), loaded.translate(TEXT, beam_size=3)[0]
    assert beamed["writing"]["text"] == best.text
    assert beamed["beam"]["hypotheses"][0]["score"] == pytest.approx(best.score, abs=1e-4)
    given = read(session, TEXT, target="the dog", look="scoring")
    assert given["scoring"]["log_prob"] == pytest.approx(loaded.score([TEXT], ["the dog"])[0].log_prob, abs=1e-4)
    assert [token["id"] for token in given["answer"]] == given["scoring"]["ids"]

    session = sessions["decoder"]
    made, [wanted_text] = read(session, TEXT), session.loaded().generate(TEXT, temperature=0, max_tokens=7)
    assert made["writing"]["text"] == wanted_text.text
    assert made["writing"]["log_probs"] == pytest.approx(wanted_text.log_probs, abs=1e-4)


def test_an_encoder_says_what_it_predicts(sessions: dict[str, Session]) -> None:
    session = sessions["encoder"]
    made, wanted = read(session, TEXT), session.loaded().predict([TEXT])[0]
    assert made["scoring"]["ids"] == wanted.argmax(-1).tolist()
    assert made["scoring"]["log_probs"] == pytest.approx(wanted.log_softmax(-1).amax(-1).tolist(), abs=1e-5)
    with pytest.raises(InputError, match="a target is for models that write"):
        read(session, TEXT, target="x", look="scoring")


def test_the_beam_is_a_tree(sessions: dict[str, Session]) -> None:
    columns = read(sessions["encoder-decoder"], TEXT, search={"kind": "beam", "beam_size": 3})["beam"]["columns"]
    open_slots = 3
    for number, column in enumerate(columns):
        totals = [node["total"] for node in column]
        assert totals == sorted(totals, reverse=True)
        kept = [node for node in column if node["kept"]]
        assert len(kept) <= open_slots
        assert column[: len(kept)] == kept  # what was pruned is worse than all that was kept
        open_slots -= sum(node["finished"] for node in column)
        for node in column:
            parent = columns[number - 1][node["parent"]] if number else None
            before = parent["total"] if parent else 0.0
            assert node["total"] == pytest.approx(before + node["log_prob"], abs=1e-4)
            assert parent is None or (parent["kept"] and not parent["finished"])
    assert any(not node["kept"] for column in columns for node in column)


def test_a_forced_token_is_written_and_the_rest_follows(sessions: dict[str, Session]) -> None:
    for kind in ("encoder-decoder", "decoder"):
        session = sessions[kind]
        free = read(session, TEXT)["writing"]
        other = free["top"][1][3]["id"]
        forced = read(session, TEXT, edits={"force": [[1, other]]})["writing"]
        assert forced["ids"][:2] == [free["ids"][0], other]
        assert forced["forced"] == [1]
        assert forced["log_probs"][1] == pytest.approx(math.log(free["top"][1][3]["p"]), abs=1e-4)
        again = read(session, TEXT, answer=forced["ids"], look="scoring")["scoring"]
        assert forced["log_probs"] == pytest.approx(again["log_probs"], abs=1e-4)
        for wrong in ([[99, 5]], [[0, 10**9]], [[-1, 5]]):
            with pytest.raises(InputError, match="cannot force token"):
                read(session, TEXT, edits={"force": wrong})
    with pytest.raises(InputError, match="not with a beam"):
        read(sessions["decoder"], TEXT, edits={"force": [[0, 5]]}, search={"kind": "beam"})


def test_a_lifted_mask_spoils_scoring_and_reads_anew_while_writing(sessions: dict[str, Session]) -> None:
    """Writing with an edit equals reading all that was written so far, at each step, with the same edit."""
    session = sessions["decoder"]
    edits = {"sw": ["mask"], "off": ["decoder.1.self.2"]}
    base = read(session, TEXT)
    edited = read(session, TEXT, edits=edits, answer=base["writing"]["ids"])
    assert edited["scoring"]["log_prob"] != pytest.approx(base["scoring"]["log_prob"], abs=1e-3)
    assert edited["scoring"]["ids"] == base["writing"]["ids"]
    written = edited["writing"]["ids"]
    for step in range(len(written)):
        once = read(session, TEXT, edits=edits, answer=written[: step + 1], write=False, look="scoring", keep=False)
        assert once["scoring"]["log_probs"][-1] == pytest.approx(edited["writing"]["log_probs"][step], abs=1e-4)
    mask = tensors(session, edited, name="decoder.layers.0.self_attention.mask")
    assert bool(mask.all())
    context = tensors(session, edited, name="decoder.layers.0.self_attention.context", index=[0, 1])
    assert context.count_nonzero() == 0


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_edits_hold_while_writing_with_a_cache(kind: str, sessions: dict[str, Session]) -> None:
    """What is written under an edit, read in one pass under the same edit, has the same probabilities."""
    session = sessions[kind]
    plain = read(session, TEXT)["writing"]["ids"]
    changed = 0
    for switch in session.model()["switches"]:
        if switch["id"] in ("mask", "late"):
            continue
        made = read(session, TEXT, edits={"sw": [switch["id"]], "off": ["decoder.2.self.1"]})
        assert made["writing"]["log_probs"] == pytest.approx(made["scoring"]["log_probs"], abs=1e-3), switch["id"]
        changed += made["writing"]["ids"] != plain
    assert changed > 2


def test_the_tensors_are_those_of_the_answer_looked_at(sessions: dict[str, Session]) -> None:
    session = sessions["encoder-decoder"]
    base = read(session, TEXT)
    other = [*base["writing"]["ids"][:1], 9, 9]
    for look in ("writing", "scoring"):
        made = read(session, TEXT, answer=other, look=look)
        wanted = base["writing"]["ids"] if look == "writing" else other
        assert [token["id"] for token in made["answer"]] == wanted
        logits = tensors(session, made, name="output.logits", index=[0])
        assert logits.size(0) == len(wanted)
        loaded = session.loaded()
        with torch.inference_mode():
            source = torch.tensor([[token["id"] for token in made["source"]]])
            again = loaded.model(source, torch.tensor([[token["id"] for token in made["read"]]]))
        torch.testing.assert_close(logits, again[0], rtol=0, atol=1e-4)


def test_cache_sizes_are_the_caches(sessions: dict[str, Session]) -> None:
    for kind in ("encoder-decoder", "decoder"):
        session = sessions[kind]
        made = read(session, TEXT)
        model: Any = session.loaded().model
        read_ids = torch.tensor([[token["id"] for token in made["read"]]])
        cache = KVCache(model.config, 1, capacity=0)
        with torch.inference_mode():
            if kind == "encoder-decoder":
                memory = model.encode(torch.tensor([[token["id"] for token in made["source"]]]))
                model.decode(read_ids, memory, cache=cache)
            else:
                model.hidden(read_ids, cache=cache)
        assert sum(one.bytes() for one in cache.self_attention) == made["cache"]["self"][-1]
        assert sum(one.bytes() for one in cache.cross_attention) == made["cache"]["cross"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_guess_is_the_answer(kind: str, sessions: dict[str, Session]) -> None:
    session = sessions[kind]
    made = read(session, TEXT)
    states = session.guesses(OfPass(made["id"]))["states"]
    assert states[0]["at"] == "embedding"
    assert len(states) == 1 + {"encoder-decoder": 6, "decoder": 4, "encoder": 4}[kind]
    last = [guess["id"] for guess in states[-1]["guesses"]]
    right = [guess["right"] for guess in states[-1]["guesses"]]
    assert last == [top[0]["id"] for top in made["scoring"]["top"]]
    assert right == pytest.approx([math.exp(one) for one in made["scoring"]["log_probs"]], abs=1e-4)
    assert [guess["id"] for guess in states[1]["guesses"]] != last


def test_parts_of_tensors_and_parameters(sessions: dict[str, Session]) -> None:
    session = sessions["encoder-decoder"]
    made, model = read(session, TEXT), session.loaded().model
    name = "decoder.layers.1.cross_attention.weights"
    whole = tensors(session, made, name=name)
    assert torch.equal(tensors(session, made, name=name, index=[0, 1, 2]), whole[0, 1, 2])
    small = tensors(session, made, name=name, pool=4)
    assert max(small.shape[-2:]) <= 4
    assert float(small.max()) == float(whole.max())  # a sharp cell survives
    query = "decoder.layers.0.self_attention.query.weight"
    assert torch.equal(tensors(session, made, name=f"model:{query}", index=[3]), model.get_parameter(query)[3])
    for wrong in (
        {"name": "nothing"},
        {"name": "model:nothing"},
        {"name": name, "index": [0, 9]},
        {"name": name, "index": [-1]},
    ):
        with pytest.raises(InputError):
            tensors(session, made, **wrong)
    half = unpack(
        session.tensors(from_dict(TensorRequest, {"id": made["id"], "wanted": [{"name": name}], "dtype": "float16"}))
    )
    torch.testing.assert_close(half[name].float(), whole, rtol=0, atol=1e-3)


def test_only_the_last_passes_are_kept(sessions: dict[str, Session]) -> None:
    session = sessions["encoder"]
    first = read(session, TEXT)
    for _ in range(KEPT):
        read(session, "the")
    with pytest.raises(InputError, match="no longer kept"):
        session.guesses(OfPass(first["id"]))
    assert len(session.passes) == KEPT
    before = list(session.passes)
    assert read(session, "the", keep=False)["id"] is None
    assert list(session.passes) == before


def test_large_passes_are_kept_two_at_a_time(sessions: dict[str, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_BYTES", 1000)
    session = sessions["encoder"]
    made = [read(session, "the cat")["id"] for _ in range(4)]
    assert list(session.passes) == made[-2:]


def test_checkpoints_and_metrics(tmp_path: Path) -> None:
    session = small_session(tmp_path / "run", "decoder")
    weights = session.loaded().model.state_dict()
    other = {name: weight + 0.1 for name, weight in weights.items()}
    write_checkpoint(tmp_path / "run" / "checkpoints" / step_name(2), {"model.safetensors": other}, {"step": 2})
    rows = [{"step": step, "loss": 1.0 if step < 3 else math.nan, "rate": 0.1, "norm": 1.0} for step in (1, 2, 3)]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 4, "lo')
    told = session.training(after=1)
    assert [row["step"] for row in told["metrics"]][:1] == [2]
    json.dumps(told, allow_nan=False)
    assert [one["name"] for one in told["checkpoints"]] == [step_name(1), step_name(2)]
    one, two = (read(session, TEXT, checkpoint=step_name(step)) for step in (1, 2))
    assert two["checkpoint"] == step_name(2)
    assert one["scoring"]["log_prob"] != pytest.approx(two["scoring"]["log_prob"], abs=1e-3)
    with pytest.raises(InputError, match="has no checkpoint step_00000009"):
        read(session, TEXT, checkpoint="step_9")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"texts": "x"}, "unknown key 'texts'; did you mean 'text'?"),
        ({"text": 5}, "text must be a string, not 5"),
        ({"text": "x" * 9000}, "the text has 9,000 letters; at most 8,000 are read"),
        ({"text": "x", "edits": {"off": ["decoder.9.self.1"]}}, "no head 'decoder.9.self.1' in this model"),
        ({"text": "x", "edits": {"sw": ["no"]}}, "no switch 'no' for this model"),
        ({"text": "x", "edits": {"force": [[1]]}}, r"edits.force holds \[1\]"),
        ({"text": "x", "answer": [10**6]}, "the answer holds the id 1000000"),
        ({"text": "x", "answer": [5] * 600}, "the answer has 600 tokens"),
        ({"text": "x", "answer": [5], "target": "x"}, "both given"),
        ({"text": "x", "write": False}, "nothing to read"),
        ({"text": "x", "search": {"beam_size": 1000}}, "beam_size must be from 1 to 16"),
        ({"text": "x", "search": {"temperature": float("nan")}}, "temperature"),
        ({"text": "x", "search": {"kind": "sample", "top_p": 7.0}}, "top_p must be above 0"),
        ({"text": "x", "checkpoint": "../../etc"}, "checkpoint '../../etc' is not one of"),
        ({"text": "x", "max_tokens": 0}, "max_tokens must be from 1 to 512"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_are_named(asked: dict[str, Any], said: str, sessions: dict[str, Session]) -> None:
    with pytest.raises(InputError, match=said):
        sessions["decoder"].read(from_dict(PassRequest, asked))


def test_halves_of_characters_are_no_characters(sessions: dict[str, Session]) -> None:
    assert read(sessions["decoder"], "a\ud800b")["text"] == "a\ufffdb"


def test_a_session_may_be_asked_inside_nothing_else(sessions: dict[str, Session]) -> None:
    """A trace that the caller has open is refused as such, and the session goes on working."""
    session = sessions["decoder"]
    with trace(session.loaded().model), pytest.raises(InputError, match="traces do not nest"):
        read(session, TEXT)
    assert read(session, TEXT)["writing"]


def test_512_tokens(sessions: dict[str, Session]) -> None:
    made = read(sessions["decoder"], " ".join(["the cat sat on a mat"] * 60), max_tokens=2)
    assert len(made["read"]) > 400


def test_draws_are_even_and_differ() -> None:
    drawn = [draw(seed, step) for seed in range(40) for step in range(50)]
    assert all(0 <= one < 1 for one in drawn)
    assert len(set(drawn)) == len(drawn)
    counts = torch.histc(torch.tensor(drawn), bins=10, min=0, max=1)
    assert float(counts.min()) > 150


@pytest.mark.parametrize(("asked", "wanted"), [(3, 3), (None, 1)])
def test_it_computes_on_the_threads_asked_for_or_on_one(
    asked: int | None, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads wait for each other longer than a small model takes."""
    made = Session(str(small_session(tmp_path / "run", "decoder").run.path), threads=asked)
    seen = []
    for name in ("traced", "worths", "early_guesses"):
        whole = getattr(session_module, name)

        def counted(*words: Any, whole: Any = whole) -> Any:
            seen.append(torch.get_num_threads())
            return whole(*words)

        monkeypatch.setattr(session_module, name, counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = read(made, TEXT)
        made.worth(OfPass(found["id"]))
        made.guesses(OfPass(found["id"]))
    finally:
        torch.set_num_threads(before)
    assert len(seen) >= 3
    assert set(seen) == {wanted}
