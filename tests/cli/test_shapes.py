"""`clearhead shapes` from the outside."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.cli.preset_or_run import chosen_model
from clearhead.cli.tables import amount, three_digits
from clearhead.cli.untrained_attention import untrained_attention
from clearhead.errors import InputError
from clearhead.model import configure, count_parameters
from tests.cli.conftest import Call

SHALLOW = ["--set", "encoder_layers=1", "--set", "decoder_layers=1"]
SMALL = ["--batch", "2", "--length", "9", "--source-length", "7", *SHALLOW]


def shapes(*words: str) -> str:
    result = CliRunner().invoke(app, ["shapes", *words], env={"COLUMNS": "100"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_tables_say_where_things_are() -> None:
    output = shapes("tiny", *SMALL)
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "self-attention norm (B,S,D) 2×7×128 brought to standard size" in lines
    assert "q (B,H,S,d) 2×4×9×32 what each looks for" in lines
    assert "head logits (B,S,V) 2×9×10000 a score for every token" in lines
    assert any(line.startswith("total 1,611,776 ") for line in lines)
    # 2 of 2·(128·256) + 256 + 128; attention has 3 of 4·(128² + 128)
    assert any(line.startswith("feed-forward 131,840 8.2% ") for line in lines)
    answer = " ".join(lines)
    assert "most of the parameters live in the feed-forward? It has 8.2% of all (embedding has more)" in answer
    assert "and 39.7% of those in the layers." in answer


def test_the_answer_for_the_paper_s_model() -> None:
    """The number behind "most of the parameters live in the feed-forward": true of the layers, not of the whole."""
    answer = " ".join(shapes("base", "--batch", "1", "--length", "2").split())
    assert "It has 39.9% of all (the largest group) and 57.1% of those in the layers." in answer


def test_json_has_every_part_of_every_stack() -> None:
    found = json.loads(shapes("tiny", *SMALL, "--vocab", "50", "--json"))
    config = configure("tiny", encoder_layers=1, decoder_layers=1, vocab_size=50)
    assert found["total"]["parameters"] == count_parameters(config)
    assert found["size"] == {"batch": 2, "length": 9, "source_length": 7}
    assert found["config"]["vocab_size"] == 50
    query = {"stack": "decoder", "group": "cross-attention", "name": "query"}
    row = next(part for part in found["parts"] if query.items() <= part.items())
    assert (row["parameters"], row["forward_flops"]) == (128 * 128 + 128, 2 * 18 * 128 * 128)
    for key in ("parameters", "forward_flops", "backward_flops", "activation_bytes", "cache_bytes"):
        assert sum(part[key] for part in found["parts"]) == found["total"][key]
    logits = found["shapes"][-1]
    assert (logits["name"], logits["letters"], logits["sizes"]) == ("logits", ["B", "S", "V"], [2, 9, 50])


def test_attention_is_a_grid_whose_rows_sum_to_one_and_never_look_ahead() -> None:
    found = json.loads(shapes("tiny", *SMALL, "--attention", "--text", "a b a c", "--head", "3", "--json"))["attention"]
    titles = ["encoder self-attention", "decoder self-attention", "decoder cross-attention"]
    assert [one["title"] for one in found] == titles
    for one in found:
        assert one["queries"] == one["keys"] == ["a", "b", "a", "c"]
        for number, row in enumerate(one["weights"]):
            assert sum(row) == pytest.approx(1, abs=1e-5)
            ahead = row[number + 1 :]
            assert any(ahead) == (one["title"] != "decoder self-attention" and bool(ahead))
    torch.manual_seed(99)  # whatever state the caller's generator is in
    again = untrained_attention(configure("tiny"), "a b a c", head=3)
    assert [one.weights for one in again] == [one["weights"] for one in found]
    assert untrained_attention(configure("tiny"), "a b a c", head=2)[0].weights != again[0].weights


def test_the_grid_shows_percentages_and_dots_behind_the_mask() -> None:
    output = shapes("llama", "--batch", "1", "--length", "2", *SHALLOW, "--attention", "--text", "x y z")
    grid = output.partition("decoder self-attention")[2].splitlines()[1:5]
    assert grid[0].split() == ["x", "y", "z"]
    assert grid[1].split() == ["x", "100", "·", "·"]
    assert grid[2].split()[-1] == "·"
    assert sum(map(int, grid[3].split()[1:])) in (99, 100, 101)  # rounded


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gtp2"], "'gtp2' is neither a preset"),
        (["tiny", "--head", "5", "--attention"], "head 5 does not exist: the model has heads 1 to 4"),
        (["tiny", "--text", " ", "--attention"], "the text for the attention grid has no words"),
        (["tiny", "--set", "d_modle=3"], "unknown key 'd_modle'; did you mean 'd_model'?"),
        (["tiny", "--set", "d_model"], "--set wants key=value"),
        (["tiny", "--set", "heads=3"], "heads must divide d_model: d_model = 128, heads = 3"),
        (["gpt2", "--length", "2000"], "a length of 2000 is past the model's 1024 learned positions"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        shapes(*words)


@pytest.mark.parametrize("option", ["--length", "--batch", "--source-length", "--vocab", "--head"])
def test_sizes_have_a_range(option: str, call: Call) -> None:
    for value in ("0", "-3", "1" * 40):
        if (option, value) != ("--head", "1" * 40):  # how many there are, only the model can say
            status, out, err = call("shapes", "tiny", option, value)
            assert (status, out) == (2, b"")
            assert err.startswith(f"clearhead: error: {option} {value}: ")


def test_settings_change_the_preset() -> None:
    config = chosen_model("tiny", ["positions.kind=rope", "d_ff = 512", "model.norm.final=false"], 77)
    wanted = configure("tiny", positions={"kind": "rope"}, d_ff=512, norm={"final": False}, vocab_size=77)
    assert config == wanted


def test_a_run_is_as_good_as_a_preset(tmp_path: Path) -> None:
    settings = '[model]\nvocab_size = 31\nd_model = 16\nheads = 2\nd_ff = 8\nkind = "decoder"\n'
    (tmp_path / "config.toml").write_text(settings)
    config = chosen_model(str(tmp_path), ["decoder_layers=1"])
    assert config == configure(vocab_size=31, d_model=16, heads=2, d_ff=8, kind="decoder", decoder_layers=1)
    with pytest.raises(InputError, match=r"is not a run: it has no config\.toml"):
        chosen_model(str(tmp_path.parent), [])


def test_numbers_have_three_digits_and_a_unit() -> None:
    numbers = [0, 7, 999, 1000, 63_082_496, 999_600, 133.8e9, 2.5e12]
    assert [amount(number) for number in numbers] == ["–", "7", "999", "1.00 k", "63.1 M", "1.00 M", "134 G", "2.50 T"]
    assert amount(1234, "B") == "1.23 kB"
    rounded = [three_digits(number) for number in (0.5, 9.994, 9.996, 99.96, 1234)]
    assert rounded == ["0.50", "9.99", "10.0", "100", "1,234"]
