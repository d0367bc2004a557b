"""Our parameter counts beside table 3 of the paper: what agrees, and what docs/paper.md says of what does not."""

import pytest

from clearhead.model import configure, count_parameters

VOCABULARY = 37_000  # section 5.1

# the rows of table 3 that change a size and give a count, in millions; (A) leaves the count alone, (B) is below
TABLE_3 = {
    "base": ({}, 65),
    "N = 2": ({"encoder_layers": 2, "decoder_layers": 2}, 36),
    "N = 4": ({"encoder_layers": 4, "decoder_layers": 4}, 50),
    "N = 8": ({"encoder_layers": 8, "decoder_layers": 8}, 80),
    "d_model = 256": ({"d_model": 256}, 28),
    "d_model = 1024": ({"d_model": 1024}, 168),
    "d_ff = 1024": ({"d_ff": 1024}, 53),
    "d_ff = 4096": ({"d_ff": 4096}, 90),
    "big": ({"d_model": 1024, "heads": 16, "d_ff": 4096}, 213),
}


def rows_that_fit(changes: dict[str, int], millions: int) -> tuple[float, float]:
    """With how many rows of the embedding matrix our model has a count that rounds to the paper's."""
    config = configure("base", **changes)
    layers = count_parameters(config) - VOCABULARY * config.d_model
    return ((millions - 0.5) * 1e6 - layers) / config.d_model, ((millions + 0.5) * 1e6 - layers) / config.d_model


def test_base_and_big_are_within_four_percent() -> None:
    base, big = count_parameters(configure("base")), count_parameters(configure("big"))
    assert (base, big) == (63_082_496, 214_245_376)
    assert base / 65e6 == pytest.approx(0.9705, abs=1e-4)
    assert big / 213e6 == pytest.approx(1.0058, abs=1e-4)


def test_one_embedding_size_fits_every_row_but_big() -> None:
    """So the layers are the paper's to the last matrix, and what differs is how many embeddings were counted."""
    fits = {name: rows_that_fit(*row) for name, row in TABLE_3.items()}
    low = max(low for name, (low, _) in fits.items() if name != "big")
    high = min(high for name, (_, high) in fits.items() if name != "big")
    assert (round(low), round(high)) == (40_931, 41_161)
    assert tuple(map(round, fits["big"])) == (35_296, 36_272)


def test_narrower_keys_take_away_what_the_paper_s_rows_b_say() -> None:
    """Rows (B): queries and keys of 16 or 32 dimensions a head instead of 64, in 18 attentions."""
    for width, millions in ((16, 58), (32, 60)):
        saved = 18 * 2 * (512 + 1) * 8 * (64 - width)
        assert round((65e6 - saved) / 1e6) == millions
