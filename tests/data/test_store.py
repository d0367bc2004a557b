"""The token store: made once, in any number of pieces and processes, and never believed before it is whole."""

import errno
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearhead.data.prepare as preparing
import clearhead.data.store as stores
from clearhead.data import DataSettings, Splits, TokenizerSettings, build
from clearhead.data.pairs import Pairs
from clearhead.data.splits import held_out
from clearhead.data.windows import Windows
from clearhead.errors import InputError
from clearhead.tokenizer import corpus
from clearhead.training.config import load_recipe

SMALL = TokenizerSettings(vocab_size=300)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks, each of which is written down."""
    monkeypatch.setattr(preparing, "BLOCK", 500)
    monkeypatch.setattr(corpus, "BLOCK", 500)
    monkeypatch.setattr(stores, "EVERY", 0.0)


def write_pairs(folder: Path, count: int = 300) -> dict[str, Any]:
    (folder / "a.en").write_text("".join(f"the number {i} is {i * i}, so they say\n" for i in range(count)))
    (folder / "a.de").write_text("".join(f"die Zahl {i} ist {i * i}, wie man sagt\n" for i in range(count)))
    return {"source": str(folder / "a.en"), "target": str(folder / "a.de")}


def write_text(folder: Path) -> dict[str, Any]:
    text = "".join(f"Line {i} of a text.\n" + "\n" * (i % 5 == 0) for i in range(400))
    (folder / "a.txt").write_text(text)
    return {"text": str(folder / "a.txt"), "context": 16}


def contents(cache: Path) -> dict[str, bytes]:
    """All that the stores hold, but for what is said about them."""
    files = sorted((cache / "stores").glob("[!.]*/*"))
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}


def settings_of(kind: str, folder: Path) -> DataSettings:
    if kind == "pairs":
        return DataSettings(**write_pairs(folder))
    if kind == "labelled":
        rows = "".join(f"text number {i}\t{'even' if i % 2 == 0 else 'odd'}\n" for i in range(300))
        (folder / "a.tsv").write_text(rows)
        return DataSettings(labelled=str(folder / "a.tsv"))
    return DataSettings(**write_text(folder), documents="none" if kind == "stream" else "blank-line")


KINDS = ["pairs", "labelled", "stream", "documents"]


@pytest.mark.parametrize("kind", KINDS)
def test_processes_and_kills_leave_no_trace(
    kind: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, blocks: None
) -> None:
    """One process or two, interrupted again and again or not at all: the same bytes, and no block is encoded twice."""
    settings = settings_of(kind, tmp_path)
    whole = build(settings, asked=SMALL)
    wanted = contents(cache)
    assert len(wanted) > 5
    calls = {"count": 0, "limit": 3}
    encode = preparing.Work.__call__

    def limited(self: Any, block: Any) -> Any:
        if calls["count"] == calls["limit"]:
            raise KeyboardInterrupt
        calls["count"] += 1
        return encode(self, block)

    monkeypatch.setattr(preparing.Work, "__call__", limited)
    monkeypatch.setattr(preparing, "in_order", lambda work, items, workers: corpus.in_order(work, items, 1))
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "other"))
    interruptions = 0
    while True:
        try:
            again = build(settings, whole.tokenizer)
            break
        except KeyboardInterrupt:
            interruptions += 1
            calls["limit"] += 3
            assert not list((tmp_path / "other" / "stores").glob("[!.]*")), "nothing half-made has a name"
            for path in (tmp_path / "other" / "stores").glob(".*.part/train.*"):  # as if more had been written
                with path.open("ab") as file:
                    file.write(b"half of")
    assert interruptions > 1
    assert calls["count"] > 6
    assert contents(tmp_path / "other") == wanted
    assert again.train.plan(1, 2, 100) == whole.train.plan(1, 2, 100)
    total = calls["count"]
    calls["limit"] = calls["count"]
    build(settings, whole.tokenizer)  # found: nothing is encoded
    assert calls["count"] == total


def test_a_full_disk_leaves_nothing_that_is_believed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, blocks: None
) -> None:
    settings = DataSettings(**write_pairs(tmp_path))
    whole = build(settings, asked=SMALL)
    wanted = contents(cache)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "full"))
    sync, count = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal count
        count += 1
        if count >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    room = 0
    for room in (1, 4, 20, 60):  # noqa: B007 (what `full` reads)
        count = 0
        with pytest.raises(InputError, match="No space left on device"):
            build(settings, whole.tokenizer)
        assert not list((tmp_path / "full" / "stores").glob("[!.]*"))
    monkeypatch.setattr(os, "fsync", sync)
    build(settings, whole.tokenizer)
    assert contents(tmp_path / "full") == wanted


def test_a_store_is_of_contents_and_not_of_names(tmp_path: Path, cache: Path) -> None:
    settings = DataSettings(**write_pairs(tmp_path))
    tokenizer = build(settings, asked=SMALL).tokenizer

    def made() -> int:
        build(settings, tokenizer)
        return len(list((cache / "stores").glob("[!.]*")))

    assert made() == 1
    path = tmp_path / "a.en"
    os.utime(path, (1, 1))
    assert made() == 1, "another time, the same content"
    (tmp_path / "a.de").rename(tmp_path / "b.de")
    settings = DataSettings(source=str(path), target=str(tmp_path / "b.de"))
    assert made() == 1, "another name, the same content"
    about = path.stat()
    changed = path.read_text().replace("number 7 ", "number 8 ", 1)
    path.write_text(changed)
    assert made() == 2
    path.write_text(changed.replace("number 3 ", "number 4 ", 1))
    os.utime(path, ns=(about.st_atime_ns, path.stat().st_mtime_ns))
    assert made() == 3
    settings = DataSettings(source=str(path), target=str(tmp_path / "b.de"), max_length=100)
    assert made() == 4, "other settings are another store"


def test_verify_reads_a_file_whose_time_tells_nothing(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.en"
    settings = DataSettings(**write_pairs(tmp_path))
    build(settings, asked=SMALL)
    about = path.stat()
    path.write_text(path.read_text().replace("number 7 ", "number 8 ", 1))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert build(settings, asked=SMALL).train.examples()[7].source.startswith("the number 7")
    assert build(settings, asked=SMALL, verify=True).train.examples()[7].source.startswith("the number 8")


@pytest.mark.parametrize("documents", ["none", "file", "blank-line"])
def test_a_long_text_in_pieces_is_the_text_in_one(
    documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = DataSettings(**write_text(tmp_path), documents=documents, validation_text=str(tmp_path / "a.txt"))  # type: ignore[arg-type]
    whole = build(settings, asked=SMALL)
    monkeypatch.setattr(corpus, "BLOCK", 64)
    monkeypatch.setattr(preparing, "BLOCK", 100)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "other"))
    pieces = build(settings, asked=SMALL)
    assert isinstance(whole.train, Windows)
    assert isinstance(pieces.train, Windows)
    assert pieces.tokenizer.to_json() == whole.tokenizer.to_json()
    assert pieces.train.ids().tolist() == whole.train.ids().tolist()
    assert pieces.train.numbers().tolist() == whole.train.numbers().tolist()
    assert isinstance(pieces.validation, Windows)
    joined = "\n".join(pieces.validation.documents())
    assert joined.split() == (tmp_path / "a.txt").read_text().split()


def test_nothing_but_held_out_data_is_read_to_evaluate(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_pairs(tmp_path)
    for name in ("en", "de"):
        (tmp_path / f"v.{name}").write_text("one\ntwo\n")
    named: dict[str, Any] = {"validation_source": str(tmp_path / "v.en"), "validation_target": str(tmp_path / "v.de")}
    apart, together = DataSettings(**files, **named), DataSettings(**files)
    tokenizer = build(apart, asked=SMALL).tokenizer
    build(together, tokenizer)
    sums = {files[side]: hashlib.sha256(Path(files[side]).read_bytes()).hexdigest() for side in ("source", "target")}
    for path in files.values():
        Path(path).unlink()
    found = held_out(together, tokenizer, None, sums)  # the corpus is gone, what was made of it is there
    assert len(found["validation"]) == 30
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "empty"))
    assert held_out(apart, tokenizer)["validation"].examples() == [("one", "one"), ("two", "two")]
    with pytest.raises(InputError, match=r"a\.en: no such file"):
        held_out(together, tokenizer, None, sums)


def test_a_tokenizer_is_learned_from_evenly_spaced_parts_of_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearhead.data import vocabulary

    rows: list[tuple[str, ...]] = [(f"row {i} " * 10,) for i in range(1000)]
    monkeypatch.setattr(vocabulary, "RUN", 500)
    some = list(vocabulary.sampled(rows, 4))
    assert 200 < len(some) < 300
    places = [rows.index(row) for row in some]
    assert min(places) < 30
    assert max(places) > 970
    assert list(vocabulary.sampled(rows, 1)) == rows
    settings = DataSettings(**write_pairs(tmp_path))
    first = build(settings, asked=SMALL).tokenizer
    called: list[Any] = []
    monkeypatch.setattr(vocabulary, "get_tokenizer", lambda *args: called.append(args))
    assert build(settings, asked=SMALL).tokenizer.to_json() == first.to_json()
    assert not called, "what was learned before is found again"


# ---- the same batches as before there was a store ------------------------------------------------------------------


def digest_of(splits: Splits, max_tokens: int) -> str:
    """Tokenizer, plans and batches of two epochs."""
    total = hashlib.sha256(splits.tokenizer.to_json().encode())
    for data in filter(None, (splits.train, splits.validation, splits.test)):
        total.update(str(len(data)).encode())
        for epoch in (0, 1):
            plan = data.plan(3, epoch, max_tokens)
            total.update(repr(plan).encode())
            for indices in plan[:20]:
                batch = data.collate(indices, 3, epoch)
                for name in sorted(batch.inputs):
                    shape = str(batch.inputs[name].shape)
                    total.update(name.encode() + shape.encode() + batch.inputs[name].numpy().tobytes())
                total.update(batch.labels.numpy().tobytes() + str(batch.count).encode())
    return total.hexdigest()[:16]


@pytest.mark.parametrize("name", ["copy", "count", "shakespeare", "multi30k"])
def test_packaged_recipes_have_the_batches_they_always_had(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums were taken of the code that held everything in memory, before it was removed."""
    monkeypatch.setenv("CLEARHEAD_DATA", str(data))
    recipe = load_recipe(name, ["data.examples=3000"] if name in ("copy", "count") else [])
    found = digest_of(build(recipe.data, None, recipe.tokenizer), recipe.training.max_tokens)
    assert found == BEFORE[name]


BEFORE = {
    "copy": "6680b9bf6a34a569",
    "count": "450c65fbf7f035f9",
    "shakespeare": "dbee20ceef4429a7",
    "multi30k": "3d502911768e12c5",
}


def test_a_killed_preparation_goes_on_and_leaves_no_process(tmp_path: Path, cache: Path) -> None:
    settings = DataSettings(**write_pairs(tmp_path, 3000))
    tokenizer = build(settings, asked=SMALL).tokenizer
    wanted = contents(cache)
    tokenizer.save(tmp_path / "tokenizer.json")
    program = (
        "import sys, time; from clearhead.data import DataSettings, build; from clearhead.tokenizer import load\n"
        "import clearhead.data.prepare as p, clearhead.data.store as s; p.BLOCK, s.EVERY = 3000, 0.0\n"
        "work = p.Work.__call__; p.Work.__call__ = lambda self, block: (time.sleep(0.05), work(self, block))[1]\n"
        "a = sys.argv[1] + '/a'\n"
        "build(DataSettings(source=a + '.en', target=a + '.de'), load(sys.argv[1] + '/tokenizer.json'))"
    )
    other = tmp_path / "other"
    command, env = [sys.executable, "-c", program, str(tmp_path)], {**os.environ, "CLEARHEAD_CACHE": str(other)}
    for wait in (3, 12):
        child = subprocess.Popen(command, env=env, start_new_session=True)
        until = time.monotonic() + 60
        while journal_of(other) < wait and time.monotonic() < until:
            time.sleep(0.02)
        child.kill()
        child.wait()
        assert not list((other / "stores").glob("[!.]*"))
        until = time.monotonic() + 10
        while members_of(child.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not members_of(child.pid), "its workers have ended with it"
    subprocess.run(command, env=env, check=True)
    assert contents(other) == wanted


def journal_of(cache: Path) -> int:
    """How many blocks a preparation has written down."""
    for path in (cache / "stores").glob(".*.part/journal.json"):
        return json.loads(path.read_text())["blocks"]
    return 0


def members_of(session: int) -> list[str]:
    """The processes of a session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(path.parent.name)
    return found


def test_memory_of_what_was_read_is_given_back(tmp_path: Path) -> None:
    data = build(DataSettings(**write_pairs(tmp_path)), asked=SMALL).train
    assert isinstance(data, Pairs)
    assert isinstance(data.sources.flat, np.memmap)
    before = data.collate([3, 1]).labels.tolist()
    assert data.collate([3, 1]).labels.tolist() == before


def test_what_the_store_says_of_itself_is_json(tmp_path: Path, cache: Path) -> None:
    build(DataSettings(**write_pairs(tmp_path)), asked=SMALL)
    about = json.loads(next((cache / "stores").glob("[!.]*/about.json")).read_text())
    assert about["parts"]["train"]["kept"] == {"0": 270}
    assert about["files"]["train.source"][0] == "<u2", "two bytes an id"
