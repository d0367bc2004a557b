"""Who may ask: checked by method and headers alone, before a body is read.

On loopback without a token, anyone on this machine may ask, and no web site may: the Host must be one of ours to the
letter (a foreign name can be made to resolve to 127.0.0.1), an Origin must be our own or one allowed by name, and a
body must be JSON, which a form cannot send. With a token, everyone needs it. Bodies have at most 64 KB.
"""

import asyncio
import hmac
import json
import time
from dataclasses import dataclass
from typing import Any

from clearhead.explore.guard import HEADERS, MOST_BYTES, Headers, Refused, one

BODY_SECONDS = 10  # in which a body must have come
TYPES = ("application/json", "application/json;charset=utf-8")


@dataclass(frozen=True)
class Gate:
    """The names we are called by, the token if one is needed, and the origins whose pages may ask."""

    hosts: frozenset[str]
    token: str | None = None
    origins: frozenset[str] = frozenset()

    def origin(self, headers: Headers) -> dict[str, str]:
        """The headers with which a page of an allowed origin may read the answer, a refusal too."""
        origin = one(headers, "origin")
        if origin is None or origin not in self.origins or one(headers, "host") not in self.hosts:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-headers": "authorization, *",  # OpenAI's client sends a dozen of its own
            "access-control-allow-methods": "GET, POST",
            "access-control-expose-headers": "retry-after",
            "cross-origin-resource-policy": "cross-origin",
            "vary": "origin",
        }

    def check(self, method: str, headers: Headers) -> None:
        """Refuse what may not ask."""
        host = one(headers, "host")
        if host not in self.hosts:
            raise Refused(403, f"not served under this name; served as {', '.join(sorted(self.hosts))}")
        origin = one(headers, "origin")
        if origin not in self.origins:
            self._check_site(origin, one(headers, "sec-fetch-site"), host)
        elif method == "OPTIONS":  # a browser asks beforehand, without the token
            return
        if self.token is not None:
            scheme, _, given = (one(headers, "authorization") or "").partition(" ")
            same = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self.token.encode())
            if scheme.lower() != "bearer" or not same:
                raise Refused(401, "a bearer token is needed: Authorization: Bearer …")

    def _check_site(self, origin: str | None, site: str | None, host: str) -> None:
        if origin is not None and origin != f"http://{host}":
            raise Refused(403, "requests from other origins are not answered")
        if site not in (None, "same-origin", "none"):
            raise Refused(403, "requests from other sites are not answered")

    def check_body(self, headers: Headers) -> None:
        """Refuse what is not read: another type than JSON, or too much of it."""
        if (one(headers, "content-type") or "").lower().replace(" ", "") not in TYPES:
            raise Refused(415, "only application/json is read")
        length = one(headers, "content-length")
        if length is not None and (len(length) > 9 or int(length) > MOST_BYTES):
            raise Refused(413, f"at most {MOST_BYTES:,} bytes are read")


def in_time(receive: Any) -> Any:
    """The same, as long as a body is still to come: it must be there within a time."""
    until, whole = time.monotonic() + BODY_SECONDS, False

    async def received() -> Any:
        nonlocal whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout(until - time.monotonic()):
                message = await receive()
        except TimeoutError:
            raise Refused(408, f"the body did not come within {BODY_SECONDS} seconds") from None
        whole = not message.get("more_body")
        return message

    return received


def encoded(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


class Answer:
    """The way back to one client: a whole answer, or a stream of events. Every answer has the guard's headers."""

    def __init__(self, send: Any) -> None:
        self.send, self.extra, self.status = send, dict[str, str](), 0

    async def whole(self, status: int, content: Any, **headers: str) -> None:
        body = b"" if content is None else encoded(content)
        await self._start(status, {"content-type": "application/json", "content-length": str(len(body))} | headers)
        await self.send({"type": "http.response.body", "body": body})

    async def begin_events(self) -> None:
        await self._start(200, {"content-type": "text/event-stream; charset=utf-8"})

    async def event(self, content: Any) -> None:
        body = content.encode() if isinstance(content, str) else encoded(content)
        await self.send({"type": "http.response.body", "body": b"data: " + body + b"\n\n", "more_body": True})

    async def end_events(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        pairs = [
            (key.replace("_", "-").encode(), value.encode()) for key, value in (HEADERS | headers | self.extra).items()
        ]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
