"""Worth: taking one head away at a time, all at once in a batch, is what taking it away by hand gives."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.decoding.load import LoadedModel, load
from clearhead.errors import InputError
from clearhead.explore import worth
from clearhead.explore.interventions import find_head, silence, without_layer
from clearhead.explore.readings import given_answer, read_text, traced
from clearhead.explore.worth import worths
from clearhead.explore.writing import own_answer
from tests.decoding.models import small_run

KINDS = ("encoder-decoder", "decoder", "encoder")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    place = tmp_path_factory.mktemp("runs")
    extra: dict[str, Any] = {"data": {"text": "x", "documents": "line"}, "decoding": {"max_extra": 4}}
    return {kind: load(small_run(place / kind, kind, **extra)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("together", [1, 1 << 22])
def test_worth_is_what_a_pass_loses_without(
    kind: str, together: int, models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "MOST_CELLS", together)
    loaded = models[kind]
    config = loaded.model.config
    reading = own_answer(loaded, read_text(loaded, "the cat sat"), 5)
    found = worths(loaded, reading)
    picked = torch.tensor(reading.answer)
    before = traced(loaded, reading)[0].gather(1, picked[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(found.log_probs), before, rtol=0, atol=1e-5, check_dtype=False)
    assert len(found.heads) == {"encoder-decoder": 12, "decoder": 4, "encoder": 4}[kind]
    for one in found.heads:
        after = traced(loaded, reading, silence(*find_head(config, one.name)))[0].gather(1, picked[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(one.by_token), before - after, rtol=0, atol=1e-5, check_dtype=False)
    assert max(abs(one.worth) for one in found.heads) > 1e-3
    for one in found.layers:
        after = traced(loaded, reading, without_layer(config, one.stack, one.layer))[0].gather(1, picked[:, None])
        assert one.worth == pytest.approx(float((before - after[:, 0]).sum()), abs=1e-4)


def test_what_is_already_changed_holds_throughout(models: dict[str, LoadedModel]) -> None:
    loaded = models["encoder-decoder"]
    reading = given_answer(loaded, read_text(loaded, "the cat"), "the dog")
    edit = silence(*find_head(loaded.model.config, "decoder.1.self.1"))
    found = worths(loaded, reading, edit, layers=False)
    assert not found.layers
    named = {one.name: one.worth for one in found.heads}
    assert named["decoder.1.self.1"] == pytest.approx(0, abs=1e-6)  # it is silent already
    assert abs(named["decoder.1.self.2"]) > 1e-4


def test_nothing_to_score_is_refused(models: dict[str, LoadedModel], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no answer to score"):
        worths(models["decoder"], read_text(models["decoder"], "the"))
    with pytest.raises(InputError, match="a target is for models that write"):
        given_answer(models["encoder"], read_text(models["encoder"], "the"), "cat")
