"""What the table `data` says of the model before anything is read."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.data import DataSettings, TokenizerSettings, build


@pytest.mark.parametrize("task", ["copy", "count", "dates", "languages", "masked", "text", "labelled"])
def test_the_model_that_data_need_is_known_before_they_are_read(task: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc " * 99)
    (tmp_path / "a.tsv").write_text("a\tx\nb\ty\n" * 20)
    files = {"masked": {"text": "a.txt"}, "text": {"text": "a.txt"}, "labelled": {"labelled": "a.tsv"}}.get(task, {})
    given: dict[str, Any] = {key: str(tmp_path / name) for key, name in files.items()}
    if task not in ("text", "labelled"):
        given["task"] = task
    if task in ("copy", "count", "dates", "languages"):
        given |= {"examples": 40, "held_out": 10}
    if task in ("dates", "languages"):
        given["locales"] = ("de", "sv")
    settings = DataSettings(**given)
    kind, head = settings.model_kind()
    data = build(settings, asked=TokenizerSettings(kind=None if task in ("copy", "count") else "characters")).train
    assert kind == data.kind
    assert head == getattr(data, "head", {})
