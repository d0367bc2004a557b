"""`generate`, `score`, `encode` and `evaluate` from the command line, against the same calls in Python."""

import gzip
import json
from pathlib import Path

import numpy
import pytest

import clearhead
from tests.cli.conftest import Call
from tests.decoding.models import small_run


def test_generate_writes_what_python_gives(text_run: Path, call: Call) -> None:
    model = clearhead.load(text_run)
    wanted = model.generate("the cat", seed=3, temperature=1.2, max_tokens=9)[0]
    options = ("--seed", 3, "--temperature", 1.2, "--max-tokens", 9)
    status, out, _ = call("generate", text_run, "the cat", *options)
    assert (status, out.decode()) == (0, f"the cat{wanted.text}\n")
    out = call("generate", text_run, "the cat", *options, "--json", "--samples", 2)[1]
    first, second = map(json.loads, out.splitlines())
    assert first["text"] == wanted.text
    assert first["log_probs"] == pytest.approx(wanted.log_probs, abs=1e-4)
    assert second["text"] != first["text"]


def test_score_writes_what_python_gives(run: Path, text_run: Path, tmp_path: Path, call: Call) -> None:
    sources, targets = ["the cat", "a dog sat"], ["x", "the mat"]
    (tmp_path / "s").write_text("\n".join(sources) + "\n")
    (tmp_path / "t").write_text("\n".join(targets) + "\n")
    wanted = clearhead.load(run).score(sources, targets)
    out = call("score", run, "--source", tmp_path / "s", "--target", tmp_path / "t")[1]
    assert [float(line) for line in out.split()] == pytest.approx([one.log_prob for one in wanted], abs=1e-3)
    out = call("score", text_run, "--text", tmp_path / "s", "--json")[1]
    texts = clearhead.load(text_run).score(sources)
    assert [json.loads(line)["log_prob"] for line in out.splitlines()] == pytest.approx(
        [one.log_prob for one in texts], abs=1e-3
    )


def test_score_reads_files_as_training_does(run: Path, tmp_path: Path, call: Call) -> None:
    content = b"the cat\r\na dog sat"
    for name, same in (("s", content), ("marked", b"\xef\xbb\xbf" + content), ("packed", gzip.compress(content))):
        (tmp_path / name).write_bytes(same)
    written = {
        call("score", run, "--source", tmp_path / name, "--target", tmp_path / "s")[1]
        for name in ("s", "marked", "packed")
    }
    assert len(written) == 1
    (tmp_path / "s").write_bytes(b"the cat\n\xff\n")
    status, _, err = call("score", run, "--source", tmp_path / "s", "--target", tmp_path / "s")
    assert status == 2
    assert "line 2: not UTF-8" in err


def test_encode(tmp_path: Path, call: Call) -> None:
    encoder = small_run(tmp_path / "run", "encoder")
    (tmp_path / "in").write_text("the cat\n\na dog sat\n")
    model = clearhead.load(encoder)
    status, out, err = call("encode", encoder, tmp_path / "in")
    first, empty, third = map(json.loads, out.splitlines())
    assert (status, empty) == (0, None)
    assert "1 line without tokens" in err
    vectors = model.encode(["the cat", "a dog sat"])
    assert numpy.allclose(first, vectors[0], atol=1e-5)
    assert numpy.allclose(third, vectors[1], atol=1e-5)
    out = call("encode", encoder, tmp_path / "in", "--predict")[1]
    assert json.loads(out.splitlines()[0]) == model.predict(["the cat"])[0].argmax(-1).tolist()
    call("encode", encoder, tmp_path / "in", "--mean", "-o", tmp_path / "v.npy")
    saved = numpy.load(tmp_path / "v.npy")
    assert saved.shape == (3, 16)
    assert numpy.allclose(saved[2], vectors[1].mean(0), atol=1e-5)
    assert numpy.isnan(saved[1]).all()


def test_evaluate_files(run: Path, text_run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s").write_text("the cat\na dog sat\n")
    (tmp_path / "r").write_text("x\nthe mat\n")
    words = ("evaluate", run, "--source", tmp_path / "s", "--reference", tmp_path / "r")
    scores = json.loads(call(*words, "--json")[1])["results"][str(tmp_path / "s")]
    assert set(scores) == {"BLEU", "chrF", "TER"}
    assert "version:" in scores["BLEU"]["signature"]
    table = call(*words, "--baseline", tmp_path / "r")[1].decode()
    assert "BLEU" in table
    assert "p = " in table
    out = call(*words, "--baseline", tmp_path / "r", "--json")[1]
    assert 0 < json.loads(out)["results"][str(tmp_path / "s")]["BLEU"]["p"] <= 1
    out = call("evaluate", text_run, "--text", tmp_path / "s", "--json")[1]
    scores = json.loads(out)["results"][str(tmp_path / "s")]
    assert scores["bytes"] == len("the cat") + len("a dog sat")  # a document a line, as the run was trained
    assert scores["perplexity"] > 1


def test_evaluate_on_the_runs_own_data(tmp_path: Path, call: Call) -> None:
    from clearhead.tokenizer import Integers
    from tests.decoding.models import opinionated, write_run

    data = {"task": "reverse", "symbols": 8, "longest": 4, "examples": 100, "held_out": 20}
    tokenizer = Integers(8)
    pairs = write_run(tmp_path / "p", opinionated(0, vocab_size=12).float(), tokenizer, data=data)
    scores = json.loads(call("evaluate", pairs, "--json")[1])["results"]["test"]
    assert scores["examples"] == 20
    assert 0 <= scores["exact"] <= scores["tokens_in_place"] <= 1
    head = {"kind": "tokens", "classes": 5, "bias": False}
    model = opinionated(0, vocab_size=12, kind="encoder", head=head).float()
    counting = write_run(tmp_path / "c", model, tokenizer, data={**data, "task": "count"})
    scores = json.loads(call("evaluate", counting, "--json")[1])["results"]["test"]
    assert scores["examples"] == 20
    assert 0 <= scores["token_accuracy"] <= 1
    fewer = json.loads(call("evaluate", counting, "--json", "--limit", 7)[1])["results"]["test"]
    assert fewer["examples"] == 7
    assert fewer != {**scores, "examples": 7}
