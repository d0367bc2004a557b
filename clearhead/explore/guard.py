"""Who may talk to the page's server: only the page itself, in a browser on this machine.

A server on loopback is reachable by every site that the user has open: through DNS rebinding (a foreign name that
resolves to 127.0.0.1), through forms, and through scripts that need no answer. So: the Host must be one of ours to the
letter; a browser that says where a request comes from (Origin, Sec-Fetch-Site) must say from here; what computes takes
JSON only, with a token that is new in every process and stands in the page; there is no CORS. Everything is checked
before a body is read, and a body may have 64 KB.
"""

import hmac
import json
from typing import Any

from clearhead.errors import InputError

MOST_BYTES = 64 << 10
TOKEN = "x-clearhead-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """A request that is not answered: its status, and one line that says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def hosts(port: int) -> frozenset[str]:
    """What a browser on this machine may call us."""
    return frozenset().union(*(spelled(name, port) for name in ("127.0.0.1", "localhost", "[::1]")))


def spelled(name: str, port: int) -> set[str]:
    """A name as it stands in the Host header: with its port, which clients leave out if it is 80."""
    return {f"{name}:{port}", name} if port == 80 else {f"{name}:{port}"}


def one(headers: Headers, name: str) -> str | None:
    """The only header of a name; two of them are nobody's mistake."""
    found = [value for key, value in headers if key.lower() == name.encode()]
    if len(found) > 1:
        raise Refused(400, f"the header {name} was sent {len(found)} times")
    return found[0].decode("latin-1") if found else None


def check(method: str, headers: Headers, port: int, token: str) -> None:
    """Refuse a request by its method and headers alone."""
    host = one(headers, "host")
    if host not in hosts(port):
        raise Refused(403, f"this page is served as 127.0.0.1:{port} only")
    if method not in ("GET", "HEAD", "POST"):
        raise Refused(405, "only GET, HEAD and POST are answered")
    site = one(headers, "sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        raise Refused(403, "requests from other sites are not answered")
    origin = one(headers, "origin")
    if origin is not None and origin != f"http://{host}":
        raise Refused(403, "requests from other origins are not answered")
    if method != "POST":
        return
    kind = (one(headers, "content-type") or "").lower().replace(" ", "")
    if kind not in ("application/json", "application/json;charset=utf-8"):
        raise Refused(415, "only application/json is read")
    given = one(headers, TOKEN) or ""
    if not hmac.compare_digest(given.encode("latin-1", "replace"), token.encode()):
        raise Refused(403, "the token is not this page's: load the page again")
    length = one(headers, "content-length")
    if length is not None:
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, "content-length is no number")
        if len(length) > 9 or int(length) > MOST_BYTES:
            raise Refused(413, f"at most {MOST_BYTES:,} bytes are read")


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object; anything else is refused in one line."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "the body must be a JSON object")
    return found


def _no_constant(name: str) -> Any:
    raise InputError(f"{name} is no JSON")
