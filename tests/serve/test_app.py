"""Inside one process: who leaves is no longer decoded, what breaks is told in one line, labels where a run has some."""

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.serve.app import App, Settings
from clearhead.serve.gate import Gate
from clearhead.serve.models import Served, open_runs
from tests.decoding.models import byte_tokenizer, opinionated, write_run

HOST = "127.0.0.1:1"


class Client:
    """One request, and how long its client stays: until `pieces` parts of the answer have come."""

    def __init__(self, app: App, path: str, asked: Any, pieces: int = 1 << 30) -> None:
        self.app, self.path, self.body, self.pieces = app, path, json.dumps(asked).encode(), pieces
        self.sent = list[Any]()
        self.left = asyncio.Event()
        self.asked = False

    async def receive(self) -> Any:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": self.body}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if len(self.sent) > self.pieces:
            self.left.set()

    async def run(self) -> None:
        headers = [(b"host", HOST.encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": self.path, "headers": headers}
        await self.app(scope, self.receive, self.send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    def json(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.sent))


def talk(served: dict[str, Served], work: Any, **settings: Any) -> App:
    """Run `await work(app)` with the worker alive."""
    app = App(served, Gate(frozenset({HOST})), Settings(**settings))

    async def whole() -> None:
        app.loop = asyncio.get_running_loop()
        app.worker.thread.start()
        try:
            await asyncio.wait_for(work(app), 60)
        finally:
            await asyncio.to_thread(app.worker.stop)

    asyncio.run(whole())
    return app


def test_who_leaves_is_no_longer_decoded(runs: list[Path]) -> None:
    served = open_runs([str(runs[3])], threads=1)
    desk = served["endless"].desk

    async def work(app: App) -> None:
        asked = {"model": "endless", "prompt": "the", "max_tokens": 2000, "stream": True}
        client = Client(app, "/v1/completions", asked, pieces=3)
        asking = asyncio.ensure_future(client.run())
        while not desk.jobs:
            await asyncio.sleep(0.001)
        (row,) = desk.jobs
        await asking
        while desk.jobs:
            await asyncio.sleep(0.001)
        assert 2 <= len(row.written) < 2000

    talk(served, work)


def test_the_deadline_ends_the_work(runs: list[Path]) -> None:
    served = open_runs([str(runs[3])], threads=1)

    async def work(app: App) -> None:
        asked = {"model": "endless", "prompt": "the", "max_tokens": 2000}
        whole, stream = (Client(app, "/v1/completions", {**asked, "stream": one}) for one in (False, True))
        await asyncio.gather(whole.run(), stream.run())
        assert whole.status == 504
        assert whole.json()["error"]["message"] == "not finished within 0.3 seconds"
        assert stream.status == 200
        assert b"not finished within 0.3 seconds" in stream.sent[-2]["body"]
        while served["endless"].desk.jobs:
            await asyncio.sleep(0.001)

    talk(served, work, deadline=0.3)


def test_a_full_queue_says_when_to_come_again(runs: list[Path]) -> None:
    served = open_runs([str(runs[3])], threads=1, batch=1)
    asked = {"model": "endless", "prompt": "the", "max_tokens": 2000, "temperature": 0}

    async def work(app: App) -> None:
        first, second, third = (Client(app, "/v1/completions", asked) for _ in range(3))
        waiting = [asyncio.ensure_future(first.run())]
        while not served["endless"].desk.jobs:
            await asyncio.sleep(0.001)
        waiting.append(asyncio.ensure_future(second.run()))
        while not app.worker.waiting():
            await asyncio.sleep(0.001)
        await third.run()
        assert third.status == 429
        assert int(dict(third.sent[0]["headers"])[b"retry-after"]) >= 1
        first.left.set()  # whoever leaves makes room
        second.left.set()
        await asyncio.gather(*waiting)
        assert app.worker.waiting() == 0

    talk(served, work, queue=1)


def test_what_breaks_is_told_in_one_line(runs: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    served = open_runs([str(runs[0]), str(runs[1])], threads=1)

    def broken(*words: Any) -> Any:
        raise RuntimeError("a secret of the inside")

    served["pairs"].desk.compute = broken
    served["text"].desk.batch.step = broken

    async def work(app: App) -> None:
        pair = Client(app, "/translate", {"text": "the cat"})
        text = Client(app, "/v1/completions", {"model": "text"})
        await asyncio.gather(pair.run(), text.run())
        for client in (pair, text):
            assert client.status == 500
            assert "secret" not in str(client.sent)
        again = Client(app, "/v1/completions", {"model": "text"})  # the desk starts anew
        await again.run()
        assert again.status == 200

    talk(served, work)
    assert "a secret of the inside" in capfd.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("clearhead.decoding.classify") is None, reason="labels are not there yet")
def test_labels_where_a_run_has_some(tmp_path: Path) -> None:
    """A run as training on labels leaves it: the answer is that of `clearhead predict`."""
    tokenizer, names = byte_tokenizer(), ["bad", "good", "dull"]
    shape: dict[str, Any] = {"kind": "encoder", "head": {"kind": "pooled", "classes": 3, "bias": True}}
    model = opinionated(3, "tiny", 1.5, vocab_size=tokenizer.size, **shape).float()
    table = {"labelled": "films.tsv", "labels": names, "max_length": 32}
    run = write_run(tmp_path / "films", model, tokenizer, data=table)
    served = open_runs([str(run)], threads=1)
    texts = ["a lovely film", "no", "the cat " * 40]
    wanted: list[Any] = clearhead.load(run, threads=1).predict(texts)

    async def work(app: App) -> None:
        client = Client(app, "/predict", {"text": texts})
        await client.run()
        assert client.status == 200, client.sent
        results = client.json()["results"]
        assert [one["label"] for one in results] == [one.label for one in wanted]
        assert [one["text_cut"] for one in results] == [False, False, True]
        for found, one in zip(results, wanted, strict=True):
            assert found["probabilities"] == pytest.approx(dict(zip(names, one.probabilities, strict=True)), abs=1e-6)
        pairs = Client(app, "/predict", {"text": texts, "second": texts})
        await pairs.run()
        assert pairs.status == 400

    talk(served, work)
