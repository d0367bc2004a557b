"""What a training shows of a language model goes on from text as the model has read it, mark by mark."""

from pathlib import Path

import pytest

from clearhead.cli.commands.train import show_samples
from clearhead.data import DataSettings, TokenizerSettings
from clearhead.decoding.load import LoadedModel
from clearhead.training.config import Recipe, TrainingSettings
from clearhead.training.session import train

MODEL = {"preset": "llama", "d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 32, "decoder_layers": 1}


@pytest.mark.parametrize("documents", ["none", "line"])
def test_a_prompt_has_the_marks_that_the_data_have(
    documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[int]] = []
    ask = LoadedModel.prompt

    def prompt(loaded: LoadedModel, text: str) -> list[int]:
        given.append(ask(loaded, text))
        return given[-1]

    monkeypatch.setattr(LoadedModel, "prompt", prompt)
    (tmp_path / "text").write_text("".join(f"line {number % 7} of a text\n" for number in range(60)))
    data = DataSettings(text=str(tmp_path / "text"), documents=documents, context=32)  # type: ignore[arg-type]
    training = TrainingSettings(steps=1, max_tokens=64, warmup=1, peak=1e-3, threads=1)
    recipe = Recipe(data, MODEL, TokenizerSettings(kind="characters"), training)
    outcome = train(recipe, tmp_path / "run", attach=show_samples, quiet=True)
    validation = outcome.splits.validation
    start = validation.ids()[: len(given[0])].tolist()  # type: ignore[attr-defined]
    assert given == [start]
    assert len(start) > 5
    bos = outcome.splits.tokenizer.bos_id
    assert given[0].count(bos) == (documents == "line")  # type: ignore[arg-type]
    assert "<s>" not in (tmp_path / "run" / "train.log").read_text()
