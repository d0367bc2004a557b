"""What a model makes of one text, for each kind of model: the same as the call that fits it."""

from pathlib import Path

import clearhead
from clearhead.decoding.answer import answer
from clearhead.decoding.load import LoadedModel
from clearhead.tokenizer import SPECIAL, Characters
from tests.decoding.models import opinionated, small_run


def test_a_translation_the_next_token_and_classes(tmp_path: Path) -> None:
    pairs = clearhead.load(small_run(tmp_path / "p", "encoder-decoder"))
    assert answer(pairs, "the cat") == pairs.translate("the cat")[0].text
    writer = clearhead.load(small_run(tmp_path / "w", "decoder", data={"text": "x", "documents": "none"}))
    continued = writer.generate("the cat", max_tokens=9, temperature=0)[0]
    assert answer(writer, "the cat") == writer.tokenizer.decode(continued.tokens[:1]) != ""
    ending = clearhead.load(small_run(tmp_path / "d", "decoder", data={"text": "x", "documents": "line"}))
    assert answer(ending, "the cat") == "(the end)"
    encoder = clearhead.load(small_run(tmp_path / "e", "encoder"))
    classes = encoder.predict(["the cat"])[0].argmax(-1).tolist()
    assert len(classes) > 1
    assert answer(encoder, "the cat") == " ".join(map(str, classes))


def test_masks_are_filled_in_and_nothing_else_changes() -> None:
    tokenizer = Characters.train(["abcdefghij"], special=(*SPECIAL, "<mask>"))
    model = opinionated(0, vocab_size=tokenizer.size, kind="encoder", head={"kind": "masked"}).float()
    loaded = LoadedModel(model, tokenizer)
    best = loaded.predict(["ab<mask>d"])[0].argmax(-1).tolist()
    assert answer(loaded, "ab<mask>d") == "ab" + tokenizer.decode([best[2]]) + "d"
    assert answer(loaded, "abcd") == "abcd"
