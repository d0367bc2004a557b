"""`clearhead plan` as it is typed."""

import json

import pytest
from typer.testing import CliRunner

from clearhead.cli.commands.plan import amount_of, duration, machine_of
from clearhead.cli.main import app
from clearhead.cost.devices import DEVICES
from clearhead.errors import InputError


def test_the_table_names_both_ways_and_what_is_assumed() -> None:
    done = CliRunner().invoke(app, ["plan", "tiny", "--tokens", "1B", "--devices", "8xH100", "--length", "64"])
    assert done.exit_code == 0
    for word in ("DDP", "FSDP", "weights", "activations", "sequences at once", "sent in a step", "35% of the peak"):
        assert word in done.stdout


def test_alone_there_is_one_way_and_nothing_is_sent() -> None:
    done = CliRunner().invoke(app, ["plan", "tiny", "--tokens", "1e6", "--devices", "t4", "--json"])
    shown = json.loads(done.stdout)
    assert len(shown["plans"]) == 1
    assert shown["plans"][0]["bytes_sent"] == 0
    assert shown["device"]["name"] == "T4"


def test_words_become_numbers() -> None:
    assert (amount_of("300B"), amount_of("4.5M"), amount_of("1e9"), amount_of("7")) == (300e9, 4.5e6, 1e9, 7)
    assert machine_of("8xH100", DEVICES) == (8, DEVICES["H100"])
    assert machine_of("a100-40", DEVICES) == (1, DEVICES["A100-40"])
    assert [duration(seconds) for seconds in (0.5, 80, 100, 7200, 432_000)] == [
        "0.5 s",
        "80 s",
        "1.67 min",
        "2 h",
        "5 days",
    ]


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1e30", "5X", "nan"])
def test_amounts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--tokens is"):
        amount_of(text)


@pytest.mark.parametrize("text", ["", "8x", "0xH100", "8xH1000", "xH100", "-1xT4"])
def test_devices_that_are_not_known_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="known: H100, A100"):
        machine_of(text, DEVICES)
