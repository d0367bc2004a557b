"""A translation in pieces is the translation."""

from pathlib import Path

import pytest

import clearhead
from clearhead.decoding.streaming import stream_translation
from tests.decoding.models import small_run


@pytest.mark.parametrize("beam_size", [1, 3])
def test_pieces_join_to_what_translate_gives(beam_size: int, tmp_path: Path) -> None:
    loaded = clearhead.load(small_run(tmp_path, "encoder-decoder", decoding={"max_extra": 6}))
    for line in ("the cat sat", "", "日本"):
        pieces = list(stream_translation(loaded, line, beam_size=beam_size))
        assert "".join(pieces) == loaded.translate(line, beam_size=beam_size)[0].text
        assert len(pieces) == 1 or beam_size == 1
