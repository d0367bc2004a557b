"""The paths: what is asked becomes texts that wait, what is told becomes an answer. Plain ASGI.

GET  /v1/models  /v1/models/NAME  /healthz  /openapi.json        POST /v1/completions  /v1/embeddings
POST /translate  /predict                                        /  /page/…  /api/…: the page, if there is one
"""

import asyncio
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clearhead.decoding.classify import Classifier
from clearhead.errors import InputError, visible
from clearhead.explore.guard import Refused, parse
from clearhead.explore.server import read_body
from clearhead.serve import answers
from clearhead.serve.description import describe
from clearhead.serve.fields import read
from clearhead.serve.gate import Answer, Gate, in_time
from clearhead.serve.models import Served
from clearhead.serve.requests import CompletionRequest, EmbeddingRequest, PredictRequest, TranslateRequest
from clearhead.serve.texts import continuations, prompts_of, texts_of, tokens_of
from clearhead.serve.together import Item
from clearhead.serve.waiting import Busy, Desk, Failed, Job, Worker

T = TypeVar("T")
LATE = object()
LONG = 2048  # bytes of a body; what is longer can take a second to become tokens
BROKEN = "something went wrong here; the server's terminal says what"


class Gone(Exception):
    """The client has left."""


class NoModel(Refused):
    """None of this name, or none that can do it."""

    def __init__(self, why: str) -> None:
        super().__init__(404, why)


@dataclass
class Settings:
    """How much is allowed."""

    queue: int = 256  # texts that wait
    deadline: float = 60.0  # seconds for one request
    context: int = 2048  # tokens of a prompt and its continuation
    log: Callable[[str], None] = lambda line: None
    log_bodies: bool = False


@dataclass
class App:
    """The application; `page` is another one, for paths that are not ours."""

    served: dict[str, Served]
    gate: Gate
    settings: Settings = field(default_factory=Settings)
    page: Any = None

    def __post_init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.reader = ThreadPoolExecutor(1, "reading")
        self.worker = Worker([one.desk for one in self.served.values()], self.settings.queue, self._post)
        self.paths: dict[str, tuple[str, Any]] = {
            "/v1/models": ("GET", self.models),
            "/healthz": ("GET", self.health),
            "/openapi.json": ("GET", self.openapi),
            "/v1/completions": ("POST", self.completions),
            "/v1/embeddings": ("POST", self.embeddings),
            "/translate": ("POST", self.translate),
            "/predict": ("POST", self.predict),
        }

    def _post(self, call: Callable[[], None]) -> None:
        assert self.loop is not None
        with suppress(RuntimeError):  # the loop has ended, and nobody listens
            self.loop.call_soon_threadsafe(call)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif self.page is not None and (scope["path"] == "/" or scope["path"].startswith(("/page/", "/api/"))):
            await self._paged(scope, receive, send)
        else:
            await self._answered(scope, receive, Answer(send))

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        self.loop = asyncio.get_running_loop()
        self.worker.thread.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.loop.run_in_executor(None, self.worker.stop)
        await send({"type": "lifespan.shutdown.complete"})

    async def _paged(self, scope: Any, receive: Any, send: Any) -> None:
        """The page has a guard of its own; ours comes before its model is loaded."""
        to = Answer(send)
        try:
            self.gate.check(scope["method"], scope["headers"])
            await self.page(scope, in_time(receive), send)
        except Refused as refused:
            await self._fail(to, refused.status, refused.why)
        except InputError as mistake:  # the run cannot be read any more; where it is, is not the client's business
            self.settings.log(str(mistake))
            await self._fail(to, 500, BROKEN)

    async def _read(self, body: bytes, work: Callable[[], T]) -> T:
        """Texts become tokens; long ones beside the loop, so that the streams of others go on meanwhile."""
        if len(body) < LONG:
            return work()
        try:
            async with asyncio.timeout(self.settings.deadline):
                return await asyncio.get_running_loop().run_in_executor(self.reader, work)
        except TimeoutError:
            raise self._late() from None

    def _late(self) -> Refused:
        return Refused(504, f"not finished within {self.settings.deadline:g} seconds")

    async def _answered(self, scope: Any, receive: Any, to: Answer) -> None:
        """One answer, whatever happens; nothing of a traceback leaves the terminal."""
        began, body = time.monotonic(), b""
        try:
            # a client that does not read its answer is not waited for without end
            async with asyncio.timeout(self.settings.deadline + 30):
                to.extra = self.gate.origin(scope["headers"])
                self.gate.check(scope["method"], scope["headers"])
                handler = self._handler(scope, to)
                if scope["method"] == "POST":
                    self.gate.check_body(scope["headers"])
                    body = await read_body(in_time(receive))
                await handler(body, receive, to)
        except NoModel as missing:
            await self._fail(to, 404, missing.why, "model_not_found")
        except Refused as refused:
            more = {"www_authenticate": "Bearer"} if refused.status == 401 else {}
            more |= {"connection": "close"} if refused.status == 408 else {}  # after 413 the rest is read and forgotten
            more |= {"x_should_retry": "false"} if refused.status == 504 else {}  # or OpenAI's client asks twice more
            await self._fail(to, refused.status, refused.why, **more)
        except Busy as busy:
            await self._fail(to, busy.status, busy.why, retry_after=str(busy.seconds))
        except InputError as mistake:
            await self._fail(to, 400, str(mistake))
        except (TimeoutError, Gone, asyncio.CancelledError):
            pass  # whoever does not read, or is not there, cannot be told; nor when the server has to end
        except Failed:
            await self._fail(to, 500, BROKEN)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            await self._fail(to, 500, BROKEN)
        finally:
            said = f"{scope['method'][:20]} {visible(scope['path'])[:80]} {to.status or 'gone'}"
            self.settings.log(f"{said} {1000 * (time.monotonic() - began):.0f} ms")
            if self.settings.log_bodies and body:
                self.settings.log(visible(body.decode("utf-8", "replace")))

    async def _fail(self, to: Answer, status: int, why: str, code: str | None = None, **headers: str) -> None:
        said = answers.error(status, why, code)
        if to.status == 0:
            await to.whole(status, said, **headers)
        else:  # a stream has begun: the client learns of it as its last event
            await to.event(said)
            await to.end_events()

    def _handler(self, scope: Any, to: Answer) -> Callable[[bytes, Any, Answer], Awaitable[None]]:
        path, method = scope["path"], scope["method"]
        if method == "OPTIONS" and (path in self.paths or path.startswith("/v1/")):
            return self.preflight
        if path.startswith("/v1/models/"):
            wanted, handler = "GET", self.one_model(path.removeprefix("/v1/models/"))
        elif path in self.paths:
            wanted, handler = self.paths[path]
        else:
            raise Refused(404, "there is nothing here")
        if method != wanted and not (method == "HEAD" and wanted == "GET"):
            to.extra["allow"] = wanted
            raise Refused(405, f"only {wanted} is answered here")
        return handler

    # ---- what needs no computing -----------------------------------------------------------------------------------

    async def preflight(self, body: bytes, receive: Any, to: Answer) -> None:
        if not to.extra:
            raise Refused(405, "only GET and POST are answered")
        await to.whole(204, None)

    async def health(self, body: bytes, receive: Any, to: Answer) -> None:
        state = {"status": "stopping" if self.worker.draining else "ok", "waiting": self.worker.waiting()}
        await to.whole(503 if self.worker.draining else 200, state)

    async def openapi(self, body: bytes, receive: Any, to: Answer) -> None:
        await to.whole(200, describe(self.gate.token is not None, {name: one.can for name, one in self.served.items()}))

    async def models(self, body: bytes, receive: Any, to: Answer) -> None:
        await to.whole(200, {"object": "list", "data": [one.described() for one in self.served.values()]})

    def one_model(self, name: str) -> Any:
        async def handler(body: bytes, receive: Any, to: Answer) -> None:
            await to.whole(200, self._named(name).described())

        return handler

    def _named(self, name: str | None, verb: str | None = None) -> Served:
        """The model of a name, or the first that can do it."""
        able = [one for one in self.served.values() if verb is None or verb in one.can]
        if name is None:
            if not able:
                raise NoModel(f"no model here can {verb}")
            return able[0]
        found = self.served.get(name)
        if found is None:
            raise NoModel(f"no model {name[:80]!r}; served: {', '.join(self.served)}")
        if verb is not None and verb not in found.can:
            raise InputError(f"the model {name!r} cannot do this; it can: {', '.join(found.can)}")
        return found

    # ---- what does -------------------------------------------------------------------------------------------------

    async def told(self, desk: Desk, wanted: Sequence[Any], receive: Any) -> AsyncGenerator[tuple[int, Any], None]:
        """What the worker tells of each text, as it comes, until closed; a client that leaves, or the deadline, ends
        the work for it."""
        events: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

        def teller(number: int) -> Callable[[Any], None]:
            return lambda what: events.put_nowait((number, what))

        jobs = [Job(one, teller(number)) for number, one in enumerate(wanted)]
        loop = asyncio.get_running_loop()

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            events.put_nowait((-1, Gone()))

        self.worker.submit(desk, jobs)
        watching = asyncio.ensure_future(until_gone())
        late = loop.call_later(self.settings.deadline, events.put_nowait, (-1, LATE))
        try:
            while True:
                number, what = await events.get()
                if what is LATE:
                    raise self._late()
                if isinstance(what, Exception):
                    raise what
                yield number, what
        finally:
            late.cancel()
            watching.cancel()
            self.worker.leave(jobs)

    async def all_told(self, desk: Desk, wanted: Sequence[Any], receive: Any) -> list[Any]:
        """One result for each text."""
        found: dict[int, Any] = {}
        async with aclosing(self.told(desk, wanted, receive)) as telling:
            async for number, what in telling:
                found[number] = what
                if len(found) == len(wanted):
                    break
        return [found[number] for number in range(len(wanted))]

    async def completions(self, body: bytes, receive: Any, to: Answer) -> None:
        asked = read(CompletionRequest, parse(body))
        model = self._named(asked.model, "completions")
        with_log_probs = asked.logprobs is not None
        prompts = await self._read(body, lambda: prompts_of(asked, model))
        wanted = continuations(asked, model, prompts, self.settings.context)
        made = answers.Completion(model.name, model.checkpoint)
        given = sum(map(len, prompts))
        rows = [one.row for one in wanted]
        if not asked.stream:
            pieces = await self.all_told(model.desk, wanted, receive)
            used = answers.usage(given, sum(len(row.written) for row in rows))
            await to.whole(200, made(list(enumerate(pieces)), with_log_probs, usage=used))
            return
        with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        more = {"usage": None} if with_usage else {}
        left = len(wanted)
        async with aclosing(self.told(model.desk, wanted, receive)) as telling:
            async for number, piece in telling:
                if to.status == 0:  # not before the first word: until then a refusal still has its status
                    await to.begin_events()
                await to.event(made([(number, piece)], with_log_probs, **more))
                left -= piece.finish is not None
                if not left:
                    break
        if with_usage:
            used = answers.usage(given, sum(len(row.written) for row in rows))
            await to.event(made([], with_log_probs, usage=used))
        await to.event("[DONE]")
        await to.end_events()

    async def embeddings(self, body: bytes, receive: Any, to: Answer) -> None:
        asked = read(EmbeddingRequest, parse(body))
        model = self._named(asked.model, "embeddings")
        width = model.loaded.model.config.d_model
        if asked.dimensions not in (None, width):
            raise InputError(f"dimensions must be {width}, the width of this model, not {asked.dimensions}")
        texts = texts_of(asked.input)
        counted = await self._read(body, lambda: [len(tokens_of(model, *one)) for one in enumerate(texts, 1)])
        vectors = await self.all_told(model.desk, [Item(text, "embed") for text in texts], receive)
        packed = asked.encoding_format == "base64"
        data = [answers.embedding(number, vector, packed) for number, vector in enumerate(vectors)]
        await to.whole(200, {"object": "list", "data": data, "model": model.name, "usage": answers.usage(sum(counted))})

    async def translate(self, body: bytes, receive: Any, to: Answer) -> None:
        asked = read(TranslateRequest, parse(body))
        model = self._named(asked.model, "translate")
        beams = asked.beam_size or model.loaded.settings.beam_size
        if asked.n_best > beams:
            raise InputError(f"n_best must be from 1 to beam_size = {beams}, not {asked.n_best}")
        how = (
            ("n_best", asked.n_best),
            ("beam_size", asked.beam_size),
            ("length_penalty", asked.length_penalty),
            ("alignment", asked.alignment),
        )
        texts = enumerate(texts_of(asked.text), 1)
        sources = await self._read(body, lambda: [model.loaded.source(text, number) for number, text in texts])
        found = await self.all_told(model.desk, [Item(ids, how) for ids, _ in sources], receive)
        results = [answers.translation(model.loaded, *source, one) for source, one in zip(sources, found, strict=True)]
        used = answers.usage(sum(len(ids) for ids, _ in sources), sum(len(one.tokens) for one in found))
        await to.whole(200, {"model": model.name, "results": results, "usage": used})

    async def predict(self, body: bytes, receive: Any, to: Answer) -> None:
        asked = read(PredictRequest, parse(body))
        model = self._named(asked.model, "predict")
        assert isinstance(model.loaded, Classifier)
        loaded = model.loaded
        texts: list[Any] = texts_of(asked.text)
        if asked.second is not None:
            seconds = texts_of(asked.second)
            if not loaded.pairs or len(seconds) != len(texts):
                raise InputError(
                    f"second has {len(seconds)} texts for {len(texts)}: one for each, and only for a model of pairs"
                )
            texts = list(zip(texts, seconds, strict=True))
        pairs = [(one,) if isinstance(one, str) else one for one in texts]
        reads = await self._read(body, lambda: [loaded.ids(*one) for one in pairs])
        found = await self.all_told(model.desk, [Item(text, "predict") for text in texts], receive)
        results = [
            {
                "label": one.label,
                "probabilities": dict(zip(loaded.labels, one.probabilities, strict=True)),
                "text_cut": read[2],
            }
            for one, read in zip(found, reads, strict=True)
        ]
        used = answers.usage(sum(len(read[0]) for read in reads))
        await to.whole(200, {"model": model.name, "results": results, "usage": used})
