"""One object for everything: `clearhead.load(run)`, on small runs of random weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.scoring import score_pairs
from clearhead.errors import InputError
from clearhead.machine import pick_device
from clearhead.model import EncoderDecoder, EncoderOnly
from clearhead.tokenizer import Characters, Integers
from tests.decoding.models import byte_tokenizer, opinionated, small_run

LINES = ["the cat sat", "", "Ünïcödé 日本", "the dog sat on the mat and the cat", "</s> is text"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    run = small_run(tmp_path_factory.mktemp("runs") / "pairs", "encoder-decoder", decoding={"max_extra": 6})
    return clearhead.load(run)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    data: dict[str, Any] = {"data": {"text": "x", "documents": "line"}, "decoding": {"max_tokens": 12}}
    return clearhead.load(small_run(tmp_path_factory.mktemp("runs") / "text", "decoder", **data))


def test_translations_carry_everything(translator: LoadedModel) -> None:
    found = translator.translate(LINES, n_best=3, alignment=True)
    assert len(found) == len(LINES)
    for line, best in zip(LINES, found, strict=True):
        assert best.text == translator.tokenizer.decode(best.tokens)
        assert len(best.log_probs) == len(best.tokens) + best.finished
        assert len(best.others) == 2
        assert best.score >= best.others[0].score >= best.others[1].score
        source = translator.source(line)[0]
        assert best.alignment is not None
        assert [link.target for link in best.alignment.links] == list(range(len(best.tokens)))
        assert all(0 <= link.source < len(source) and 0 < link.weight <= 1 for link in best.alignment.links)


def test_any_beam_above_one_searches(translator: LoadedModel) -> None:
    for size in (1, 2, 3):
        for best in translator.translate(LINES[:2], n_best=size, beam_size=size):
            assert len(best.others) == size - 1
            assert len({tuple(one.tokens) for one in (best, *best.others)}) == size


@pytest.mark.parametrize("beam_size", [1, 4])
def test_scoring_a_translation_gives_its_log_probabilities(translator: LoadedModel, beam_size: int) -> None:
    found = translator.translate(LINES, beam_size=beam_size)
    sources = [translator.source(line)[0] for line in LINES]
    start, end = translator.tokenizer.bos_id, translator.tokenizer.eos_id
    assert isinstance(translator.model, EncoderDecoder)
    assert start is not None
    assert end is not None
    written = [[start, *one.tokens, *([end] if one.finished else [])] for one in found]
    for one, log_probs in zip(found, score_pairs(translator.model, sources, written), strict=True):
        assert one.log_probs == pytest.approx(log_probs, abs=1e-4)
    texts = ["the cat", "", "日本", "dog", "</s>"]
    for text, score in zip(texts, translator.score(LINES, texts), strict=True):
        assert score.tokens == [*translator.tokenizer.encode_ordinary(text), end]
        assert len(score.log_probs) == len(score.tokens)


def test_lines_do_not_change_each_other(translator: LoadedModel) -> None:
    together = translator.translate(LINES * 3)
    for line, found in zip(LINES * 3, together, strict=True):
        alone = translator.translate(line)[0]
        assert alone.text == found.text
        assert alone.score == pytest.approx(found.score, abs=1e-4)


def test_forced_beginnings(translator: LoadedModel) -> None:
    found = translator.translate(LINES[:2], prefixes=["the ", "dog"])
    assert [one.text[:3] for one in found] == ["the", "dog"]
    mixed = translator.translate(LINES[:3], prefixes=["the ", "", "dog"], n_best=2)
    for one in (*mixed, *(other for first in mixed for other in first.others)):
        assert len(one.log_probs) == len(one.tokens) + one.finished  # of every token, forced or not, and of the end
    scored = translator.score(LINES[:3], [one.text for one in mixed])
    for one, score in zip(mixed, scored, strict=True):
        if one.finished and one.tokens == score.tokens[:-1]:
            assert one.log_probs == pytest.approx(score.log_probs, abs=1e-6)
    with pytest.raises(InputError, match="1 prefixes for 2 sources"):
        translator.translate(LINES[:2], prefixes=["the "])


def test_long_sources_are_cut_and_said_so(translator: LoadedModel) -> None:
    ids, cut = translator.source("cat " * 50_000)
    assert len(ids) == translator.settings.max_source
    assert cut
    assert ids[-1] == translator.tokenizer.eos_id
    assert translator.source("cat")[1] is False


def test_no_more_of_a_long_source_is_tokenized_than_could_be_kept(
    translator: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = translator.tokenizer.encode_ordinary

    def noted(text: str, *given: Any, **named: Any) -> list[int]:
        asked.append(len(text))
        return real(text, *given, **named)

    monkeypatch.setattr(translator.tokenizer, "encode_ordinary", noted)
    most = 64 * translator.settings.max_source
    assert translator.source("c" * (most + 1))[1] is True
    assert asked == [most]


def test_settings_come_from_the_run_and_can_be_changed(tmp_path: Path) -> None:
    model = clearhead.load(small_run(tmp_path, "encoder-decoder", decoding={"beam_size": 2, "max_extra": 3}))
    assert model.settings.beam_size == 2
    line = "the cat sat"
    assert len(model.translate(line)[0].tokens) <= len(model.source(line)[0]) + 3
    with pytest.raises(InputError, match="n_best must be between 1 and beam_size = 2"):
        model.translate(line, n_best=3)
    with pytest.raises(InputError, match="did you mean 'beam_size'"):
        model.translate(line, beam_sise=3)
    with pytest.raises(InputError, match=r"decoding\.beam_size must be a whole number"):
        model.translate(line, beam_size="4")


def test_long_texts_are_scored_in_windows_as_long_as_those_of_training(tmp_path: Path, writer: LoadedModel) -> None:
    data = {"text": "x", "documents": "line", "context": 5}
    assert clearhead.load(small_run(tmp_path, "decoder", data=data)).window() == 5
    assert writer.window() == 512, "where nothing is said"


def test_streams_are_the_same_text_in_pieces(writer: LoadedModel) -> None:
    for seed in range(4):
        whole = writer.generate("the cat", seed=seed, temperature=1.5)[0]
        pieces = list(writer.stream("the cat", seed=seed, temperature=1.5))
        assert "".join(pieces) == whole.text
        assert len(pieces) > 1
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in whole.text


def test_generation_does_not_depend_on_the_batch(writer: LoadedModel) -> None:
    prompts = ["the cat", "a", "", "the dog sat on the mat"]
    together = writer.generate(prompts, seed=7, samples=2)
    assert len(together) == 8
    for i, prompt in enumerate(prompts):
        alone = writer.generate(prompt, seed=7, samples=2)
        assert [one.text for one in alone] == [one.text for one in together[2 * i : 2 * i + 2]]
    assert writer.generate("the cat", seed=7)[0].text != writer.generate("the cat", seed=8)[0].text


def test_the_seed_is_zero_unless_told(writer: LoadedModel) -> None:
    told = {seed: [one.tokens for one in writer.generate(["the cat"], seed=seed, temperature=1.0)] for seed in (0, 1)}
    assert [one.tokens for one in writer.generate(["the cat"], temperature=1.0)] == told[0] != told[1]


def test_scoring_texts(writer: LoadedModel) -> None:
    made = writer.generate("the cat", temperature=1.0, max_tokens=30)[0]
    score = writer.score(["the cat" + made.text])[0]
    assert score.tokens[-1] == writer.tokenizer.eos_id
    ids = writer.document("the cat sat")
    logits = writer.model(torch.tensor([ids[:-1]])).log_softmax(-1)
    wanted = logits[0].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert writer.score(["the cat sat"])[0].log_probs == pytest.approx(wanted.tolist(), abs=1e-5)


def test_learned_positions_limit_what_is_written() -> None:
    model = opinionated(0, "gpt2", vocab_size=275, positions={"max_length": 16}, head={"bias": False}).float()
    loaded = LoadedModel(model, byte_tokenizer())
    made = loaded.generate("the cat", max_tokens=500, temperature=1.0)[0]
    assert len(loaded.prompt("the cat")) + len(made.log_probs) - 1 <= 16
    with pytest.raises(InputError, match="learned positions end at 16"):
        loaded.generate("Ünïcödé " * 10)


@pytest.mark.parametrize("pooled", [False, True])
def test_encoding(tmp_path: Path, pooled: bool) -> None:
    loaded = clearhead.load(small_run(tmp_path, "encoder"))
    if pooled:
        head = {"kind": "pooled", "classes": 4, "bias": False}
        model = opinionated(0, "tiny", vocab_size=275, kind="encoder", head=head).float()
        loaded = LoadedModel(model, byte_tokenizer())
    assert isinstance(loaded.model, EncoderOnly)
    lines = ["the cat sat", "a", "the dog sat on the mat"]
    vectors, made = loaded.encode(lines), loaded.predict(lines)
    for line, states, prediction in zip(lines, vectors, made, strict=True):
        ids = loaded.tokens(line)
        assert states.shape == (len(ids), 16)
        assert prediction.shape == ((4,) if pooled else (len(ids), 5))
        with torch.inference_mode():
            alone = loaded.model.hidden(torch.tensor([ids]))[0]
        torch.testing.assert_close(states, alone, atol=1e-5, rtol=1e-4)
    with pytest.raises(InputError, match="line 2 has no tokens"):
        loaded.encode(["a", ""])


def test_the_wrong_kind_is_named(translator: LoadedModel, writer: LoadedModel) -> None:
    with pytest.raises(InputError, match=r"cannot generate: its model is of the kind 'encoder-decoder'.*translate"):
        translator.generate("x")
    with pytest.raises(InputError, match=r"cannot translate: its model is of the kind 'decoder'.*generate"):
        writer.translate("x")
    with pytest.raises(InputError, match="cannot score targets: its model is of the kind 'decoder'"):
        writer.score(["x"], ["y"])
    with pytest.raises(InputError, match="cannot score texts without sources: its model is of the kind"):
        translator.score(["x"])
    with pytest.raises(InputError, match="cannot encode"):
        writer.encode(["x"])
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["c"])


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run at"):
        clearhead.load(tmp_path / "nothing")
    run = small_run(tmp_path / "run", "encoder-decoder")
    weights = run / "checkpoints" / "step_00000001" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        clearhead.load(run)
    weights.write_bytes(content[:100])
    with pytest.raises(InputError, match="damaged"):
        clearhead.load(run)


def test_what_could_not_be_scored_is_refused_line_by_line() -> None:
    counted = Integers(8)
    model = LoadedModel(opinionated(0, vocab_size=counted.size).float(), counted)
    model.check_scorable("1 2", "3")
    for source, target in (("one", "3"), ("1 2", "three")):
        with pytest.raises(InputError, match=r"'(one|three)'"):
            model.check_scorable(source, target)
    with pytest.raises(InputError, match=r"line 2: .*'one'"):
        model.score(["1 2", "one"], ["3", "4"])


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "encoder-decoder")
    size = clearhead.load(run).tokenizer.size
    Characters([chr(0x4E00 + n) for n in range(size + 1)]).save(run / "tokenizer.json")
    with pytest.raises(InputError, match=rf"tokenizer\.json: the tokenizer has \d+ tokens, the model only {size}"):
        clearhead.load(run)


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "encoder-decoder")
    with pytest.raises(InputError, match="no device 'gpu': this machine has"):
        clearhead.load(run, device="gpu")
    assert clearhead.load(run, device="auto").device == pick_device("auto")


def test_threads_are_left_as_they_were(translator: LoadedModel) -> None:
    before = torch.get_num_threads()
    translator.threads = 2
    translator.translate("the cat")
    assert torch.get_num_threads() == before
    translator.threads = 1


def test_a_small_model_computes_with_one_thread_unless_told(translator: LoadedModel) -> None:
    assert translator.threads == 1
    assert LoadedModel(opinionated(), byte_tokenizer(), threads=2).threads == 2


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_have_a_range(threads: int) -> None:
    """With a hundred thousand of them, OpenMP ends in a segmentation fault."""
    with pytest.raises(InputError, match=f"threads must be between 1 and 1024, not {threads}"):
        LoadedModel(opinionated(), byte_tokenizer(), threads=threads)
