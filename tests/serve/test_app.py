"""Inside one process: who leaves is no longer decoded, what breaks is told in one line."""

import asyncio
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import clearhead
from clearhead.decoding.abandon import Abandoned
from clearhead.decoding.beam import BeamSearch
from clearhead.decoding.rolling import Row
from clearhead.decoding.sample import Sampling
from clearhead.errors import InputError
from clearhead.serve.app import App, Settings
from clearhead.serve.fields import schema
from clearhead.serve.gate import Gate
from clearhead.serve.models import Served, open_runs
from clearhead.serve.requests import TranslateRequest
from clearhead.serve.waiting import Job
from tests.decoding.models import small_run

HOST = "127.0.0.1:1"


class Client:
    """One request, and how long its client stays: until `pieces` parts of the answer have come."""

    def __init__(self, app: App, path: str, asked: Any, pieces: int = 1 << 30) -> None:
        self.app, self.path, self.body, self.pieces = app, path, json.dumps(asked).encode(), pieces
        self.sent, self.host = list[Any](), HOST
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
        headers = [(b"host", self.host.encode()), (b"content-type", b"application/json")]
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

    # in a thread of its own: in this one Playwright's loop may be running, of a browser opened for other tests
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, whole()).result()
    return app


def test_who_leaves_is_no_longer_decoded(runs: list[Path]) -> None:
    served = open_runs([str(runs[3])], threads=1)
    desk: Any = served["endless"].desk

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
        assert dict(whole.sent[0]["headers"])[b"x-should-retry"] == b"false"  # or the client does it all twice more
        assert stream.status == 200
        assert b"not finished within 0.3 seconds" in stream.sent[-2]["body"]
        while served["endless"].desk.under_way:
            await asyncio.sleep(0.001)

    talk(served, work, deadline=0.3)


def test_a_full_queue_says_when_to_come_again(runs: list[Path]) -> None:
    served = open_runs([str(runs[3])], threads=1, batch=1)
    asked = {"model": "endless", "prompt": "the", "max_tokens": 2000, "temperature": 0}

    async def work(app: App) -> None:
        first, second, third = (Client(app, "/v1/completions", asked) for _ in range(3))
        waiting = [asyncio.ensure_future(first.run())]
        while not served["endless"].desk.under_way:
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

    desks: list[Any] = [one.desk for one in served.values()]
    desks[0].compute = desks[1].batch.step = broken

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


def test_labels(runs: list[Path]) -> None:
    """The answer is that of `clearhead predict`."""
    served = open_runs([str(runs[4])], threads=1)
    texts = ["a lovely film", "no", "the cat " * 40]
    wanted: list[Any] = clearhead.load(runs[4], threads=1).predict(texts)

    async def work(app: App) -> None:
        client = Client(app, "/predict", {"text": texts})
        await client.run()
        assert client.status == 200, client.sent
        results = client.json()["results"]
        assert [one["label"] for one in results] == [one.label for one in wanted]
        assert [one["text_cut"] for one in results] == [False, False, True]
        for found, one in zip(results, wanted, strict=True):
            chances = dict(zip(["bad", "good", "dull"], one.probabilities, strict=True))
            assert found["probabilities"] == pytest.approx(chances, abs=1e-6)
        pairs = Client(app, "/predict", {"text": texts, "second": texts})
        await pairs.run()
        assert pairs.status == 400
        nothing = Client(app, "/predict", {"text": ["", ""]})
        await nothing.run()
        assert nothing.status == 400
        assert "a text without a single token has no label" in nothing.json()["error"]["message"]

    talk(served, work)


def test_a_search_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """Two clients in one beam search that would take a minute: it goes on while one of them is there."""
    run = small_run(tmp_path / "pairs", "encoder-decoder", decoding={"max_extra": 20_000, "min_length": 20_000})
    served = open_runs([str(run)], threads=1)
    desk: Any = served["pairs"].desk
    compute, begun, ended = desk.compute, list[int](), list[BaseException]()

    def watched(sources: list[Any], how: Any) -> list[Any]:
        begun.append(len(sources))
        try:
            return list(compute(sources, how))
        except BaseException as why:
            ended.append(why)
            raise

    desk.compute = watched

    async def work(app: App) -> None:
        both = Client(app, "/translate", {"text": ["the cat", "a dog"]}), Client(app, "/translate", {"text": "a dog"})
        app.worker.changed.acquire()  # until both wait
        asking = [asyncio.ensure_future(one.run()) for one in both]
        while app.worker.waiting() < 3:
            await asyncio.sleep(0.001)
        app.worker.changed.release()
        while not begun:
            await asyncio.sleep(0.001)
        both[0].left.set()
        await asking[0]
        await asyncio.sleep(0.2)
        assert not ended
        both[1].left.set()
        await asking[1]
        while not ended:
            await asyncio.sleep(0.001)

    talk(served, work)
    assert begun == [3]
    assert isinstance(ended[0], Abandoned)


def test_long_prompts_are_read_in_several_turns(runs: list[Path]) -> None:
    desk: Any = open_runs([str(runs[3])], threads=1)["endless"].desk
    rows = [Row([5] * length, Sampling(0.0), 4) for length in (9_000, 10, 3_000, 1_000, 100)]
    desk.waiting.extend(Job(SimpleNamespace(row=row), print) for row in rows)
    assert [[len(job.wanted.row.prompt) for job in desk.take()] for _ in range(4)] == [
        [9_000], [10, 3_000, 1_000], [100], []
    ]  # fmt: skip


def test_long_texts_are_read_beside_the_loop(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is made into tokens, which can take a second, others are answered."""
    served = open_runs([str(one) for one in runs], threads=1)
    reading, go_on = threading.Event(), threading.Event()

    def held(itself: Any) -> Any:
        def call(*given: Any) -> Any:
            if len(str(given[0])) > 3000:
                reading.set()
                assert go_on.wait(10), "the loop waits for a text to be read"
            return itself(*given)

        return call

    for one, name in (("text", "prompt"), ("vectors", "tokens"), ("pairs", "source"), ("films", "ids")):
        loaded: Any = served[one].loaded
        monkeypatch.setattr(loaded, name, held(getattr(loaded, name)))
    long = "the cat " * 500
    asked: list[tuple[str, Any]] = [
        ("/v1/completions", {"model": "text", "prompt": long, "max_tokens": 3}),
        ("/v1/embeddings", {"model": "vectors", "input": long}),
        ("/translate", {"text": long}),
        ("/predict", {"text": long}),
    ]

    async def work(app: App) -> None:
        for path, body in asked:
            reading.clear()
            go_on.clear()
            client, other = Client(app, path, body), Client(app, "/v1/completions", {"model": "text", "prompt": "a"})
            asking = asyncio.ensure_future(client.run())
            await asyncio.to_thread(reading.wait, 10)
            await other.run()
            go_on.set()
            await asking
            assert (client.status, other.status) in ((200, 200), (400, 200)), client.sent

    talk(served, work)


def test_the_deadline_holds_for_reading_too(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    served = open_runs([str(runs[1])], threads=1)
    go_on = threading.Event()
    loaded: Any = served["text"].loaded
    monkeypatch.setattr(loaded, "prompt", lambda text: go_on.wait(20) and [])

    async def work(app: App) -> None:
        clients = [Client(app, "/v1/completions", {"model": "text", "prompt": "x" * 3000}) for _ in range(3)]
        await asyncio.wait([asyncio.ensure_future(one.run()) for one in clients], timeout=10)
        go_on.set()
        assert [one.status for one in clients] == [504] * 3
        assert clients[2].json()["error"]["message"] == "not finished within 0.3 seconds"

    talk(served, work, deadline=0.3)


@pytest.mark.parametrize("form", ["gnmt", "power"])
def test_no_penalty_that_may_be_asked_for_is_beyond_numbers(form: Any) -> None:
    """In the longest translation that a run may allow."""
    numbers = schema(TranslateRequest)["properties"]["length_penalty"]["anyOf"][0]
    for penalty in (numbers["minimum"], numbers["maximum"]):
        scores = [-5.0 / BeamSearch(4, penalty, form).penalty(length) for length in (1, 2_000_000)]
        assert all(math.isfinite(score) and score < 0 for score in scores)


def test_nothing_is_loaded_for_the_page_before_it_is_known_who_asks() -> None:
    seen = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        raise InputError("/a/place/of/ours: no such run")

    async def work(app: App) -> None:
        app.page = page
        foreign, ours, nothing = Client(app, "/", {}), Client(app, "/api/model", {}), Client(app, "/favicon.ico", {})
        foreign.host = "evil.example:1"
        for client in (foreign, ours, nothing):
            await client.run()
        assert (foreign.status, ours.status, nothing.status) == (403, 500, 404)
        assert b"place" not in ours.sent[1]["body"]

    said: list[str] = []
    talk({}, work, log=said.append)
    assert seen == ["/api/model"]
    assert "/a/place/of/ours: no such run" in said
