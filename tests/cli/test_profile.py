"""`clearhead profile` from the outside; no time is asserted."""

import json

import pytest
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.errors import InputError
from tests.cli.conftest import Call

SMALL = ["--batch", "2", "--length", "9", "--set", "encoder_layers=1", "--set", "decoder_layers=1", "--rounds", "1"]


def profile(*words: str) -> str:
    result = CliRunner().invoke(app, ["profile", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_table_has_a_row_for_each_part() -> None:
    output = profile("tiny", *SMALL, "--vocab", "100")
    rows = [line.split()[0] for line in output.splitlines() if line]
    for row in ("embedding", "self-attention", "cross-attention", "query", "mixing", "inner", "norms", "head", "total"):
        assert row in rows
    assert "Median of 1 passes on 1 thread." in output


def test_json_has_times_and_memory_of_every_part() -> None:
    found = json.loads(profile("llama", *SMALL, "--vocab", "100", "--threads", "1", "--json"))
    assert (found["rounds"], found["threads"], found["config"]["vocab_size"]) == (1, 1, 100)
    parts = {(part["stack"], part["group"], part["name"]): part for part in found["parts"]}
    inner = parts["decoder", "feed-forward", "inner"]
    assert inner["forward_seconds"] > 0
    assert inner["backward_seconds"] > 0
    assert inner["forward_kept_bytes"] == 4 * 2 * 9 * 1376
    assert inner["backward_peak_bytes"] > 0
    assert found["unwatched"]["backward_seconds"] > 0


def test_mistakes_are_named(call: Call) -> None:
    for option in ("--rounds", "--threads"):
        status, out, err = call("profile", "tiny", option, "0")
        assert (status, out) == (2, b"")
        assert err.startswith(f"clearhead: error: {option} 0: ")
    with pytest.raises(InputError, match="'nothing' is neither a preset"):
        profile("nothing")


def test_what_cannot_fit_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(
        InputError, match=r"^tiny: weights, gradients and activations .* need .*B of memory, and this machine has"
    ):
        profile("tiny", *SMALL, "--set", "d_ff=1000000000")
