"""The cache of data, damaged: nothing of it is believed, and all of it can be made again."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import clearhead.data.prepare as preparing
import clearhead.data.store as stores
from clearhead.data import DataSettings, build
from clearhead.errors import InputError
from tests.data.test_store import SMALL, contents, write_pairs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_damaged_is_made_again(tmp_path: Path, cache: Path) -> None:
    settings = DataSettings(**write_pairs(tmp_path))
    tokenizer = build(settings, asked=SMALL).tokenizer
    wanted = contents(cache)
    (column,) = (cache / "stores").glob("[!.]*/train.source")
    column.write_bytes(column.read_bytes()[:-2])
    build(settings, tokenizer)
    assert contents(cache) == wanted
    flip(column)
    build(settings, tokenizer)
    assert contents(cache) == wanted, "it was touched since"
    time_of = column.stat().st_mtime_ns
    flip(column)
    os.utime(column, ns=(time_of, time_of))
    build(settings, tokenizer)
    assert contents(cache) != wanted, "by size and time alone it is not seen"
    build(settings, tokenizer, verify=True)
    assert contents(cache) == wanted
    about = next((cache / "stores").glob("[!.]*/about.json"))
    for damaged in (about.read_text()[:50], about.read_text().replace('"<u2"', '"<u4"'), "[" * 100_000, "[]"):
        about.write_text(damaged)
        build(settings, tokenizer)
        assert contents(cache) == wanted


def flip(path: Path) -> None:
    """One bit of a file."""
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)


def test_a_damaged_journal_is_no_journal(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "BLOCK", 500)
    monkeypatch.setattr(stores, "EVERY", 0.0)
    settings = DataSettings(**write_pairs(tmp_path))
    tokenizer = build(settings, asked=SMALL).tokenizer
    wanted = contents(cache)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "other"))
    finish = stores.Writer.finish
    monkeypatch.setattr(stores.Writer, "finish", lambda self, parts: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        build(settings, tokenizer)
    monkeypatch.setattr(stores.Writer, "finish", finish)
    (journal,) = (tmp_path / "other" / "stores").glob(".*.part/journal.json")
    said = json.loads(journal.read_text())
    assert said["blocks"] > 2
    journal.write_text(json.dumps(said | {"blocks": said["blocks"] - 1}))  # of which a block would be there twice
    build(settings, tokenizer)
    assert contents(tmp_path / "other") == wanted


def test_a_damaged_tokenizer_is_learned_again(tmp_path: Path, cache: Path) -> None:
    settings = DataSettings(**write_pairs(tmp_path))
    wanted = build(settings, asked=SMALL).tokenizer.to_json()
    (kept,) = (cache / "tokenizers").glob("*.json")
    whole = kept.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b'"id": 2', b'"id": 3', 1), b""):
        assert damaged != whole
        kept.write_bytes(damaged)
        assert build(settings, asked=SMALL).tokenizer.to_json() == wanted
        assert kept.read_bytes() == whole
    kept.unlink()
    kept.mkdir()
    assert build(settings, asked=SMALL).tokenizer.to_json() == wanted
    assert kept.read_bytes() == whole


def test_what_killed_processes_left_in_the_cache_is_removed(tmp_path: Path, cache: Path) -> None:
    left = [cache / "sums" / ".x.json.999999999", cache / "stores" / ".old.x.999999999"]
    mine, others = cache / "tokenizers" / f".x.json.{os.getppid()}", cache / "sums" / ".mine.txt"
    for path in (*left, mine, others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    build(DataSettings(**write_pairs(tmp_path)), asked=SMALL)
    assert [path.exists() for path in left] == [False, False]
    assert mine.exists(), "its process is alive"
    assert others.exists()
    found = {path.name for path in cache.iterdir()}
    assert found == {"sums", "stores", "tokenizers", "locks"}, "all folders that things are written into are cleared up"


@pytest.mark.parametrize("key", ["tsv", "labelled", "source"])
@pytest.mark.parametrize(("name", "what"), [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")])
def test_what_is_no_file_is_refused_and_not_waited_for(key: str, name: str, what: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    files: dict[str, Any] = dict.fromkeys((key, "target") if key == "source" else (key,), str(tmp_path / name))
    with pytest.raises(InputError, match=f"cannot read .*: it is {what}"):
        build(DataSettings(**files), asked=SMALL)
