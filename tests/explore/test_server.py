"""The server: answers its own page, refuses everyone else as documented, and never shows a traceback."""

import json
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearhead.explore.guard import HEADERS, MOST_BYTES
from clearhead.explore.server import create_app, listen
from clearhead.explore.session import Session
from clearhead.explore.wire import unpack
from tests.explore.runs import small_session

PORT, TOKEN = 8029, "a-token-of-this-process"
HOST = f"127.0.0.1:{PORT}"
GOOD = {"host": HOST, "content-type": "application/json", "x-clearhead-token": TOKEN}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return small_session(tmp_path_factory.mktemp("runs") / "demo", "encoder-decoder")


@pytest.fixture(scope="module")
def client(session: Session) -> Iterator[Any]:
    from starlette.testclient import TestClient

    with TestClient(create_app(session, PORT, TOKEN), f"http://{HOST}", raise_server_exceptions=False) as made:
        yield made


def post(client: Any, path: str, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=content, headers={**GOOD, **headers})


def refused(answer: Any, status: int) -> None:
    """One line of JSON, with every header, and nothing of the inside."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert "\n" not in answer.json()["error"]
    assert not re.search(r"Traceback|File \"|\.py|0x[0-9a-f]{6}", answer.text)
    has_headers(answer)


def has_headers(answer: Any) -> None:
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert "server" not in answer.headers


def test_the_page_and_its_files(client: Any) -> None:
    page = client.get("/", headers={"sec-fetch-site": "none"})
    assert page.status_code == 200
    assert f'content="{TOKEN}"' in page.text
    has_headers(page)
    for name in re.findall(r'"(/page/[^"]+)"', page.text):
        found = client.get(name, headers={"sec-fetch-site": "same-origin"})
        assert found.status_code == 200
        has_headers(found)
    script = client.get("/page/main.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"


def test_a_whole_visit(client: Any) -> None:
    model = client.get("/api/model").json()
    assert model["format"] == "clearhead-explore-1"
    assert client.get("/api/training?after=0").json()["metrics"] == []
    made = post(client, "/api/pass", {"text": "the cat", "edits": {"off": ["decoder.1.self.1"]}}).json()
    assert made["writing"]["ids"]
    name = "decoder.layers.0.self_attention.weights"
    sent = post(client, "/api/tensors", {"id": made["id"], "wanted": [{"name": name}]})
    assert sent.headers["content-type"] == "application/octet-stream"
    assert list(unpack(sent.content)[name].shape) == [1, 2, len(made["read"]), len(made["read"])]
    assert len(post(client, "/api/worth", {"id": made["id"]}).json()["heads"]) == 12
    assert len(post(client, "/api/guesses", {"id": made["id"]}).json()["states"]) == 7
    for answer in (sent, post(client, "/api/pass", {"text": "the"})):
        has_headers(answer)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_our_own_names(host: str, client: Any) -> None:
    origin = f"http://{host}:{PORT}"
    assert client.get("/", headers={"host": f"{host}:{PORT}"}).status_code == 200
    answer = post(client, "/api/pass", {"text": "a"}, host=f"{host}:{PORT}", origin=origin)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", f"evil.example:{PORT}", "127.0.0.1", "localhost", "127.0.0.1:80", f"127.0.0.2:{PORT}"),
        *(f"localhost.evil.example:{PORT}", f"127.0.0.1:{PORT}.evil.example", f"LOCALHOST:{PORT}", f"0.0.0.0:{PORT}"),
        *(f"user@127.0.0.1:{PORT}", f"::1:{PORT}", f"[::1]:{PORT} ", "", f"127.1:{PORT}", f"localhost.:{PORT}"),
    ],
)
def test_other_hosts_are_refused(host: str, client: Any) -> None:
    for path in ("/", "/api/model", "/page/main.js", "/nothing"):
        refused(client.get(path, headers={"host": host}), 403)
    refused(post(client, "/api/pass", {"text": "a"}, host=host), 403)


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "null",
            "http://evil.example",
            f"https://{HOST}",
            "http://127.0.0.1",
            f"http://{HOST}.evil.example",
            "file://",
        ),
        *(f"http://localhost:{PORT}", f"http://{HOST}/", ""),  # ours, but not the one this host has; and malformed ones
    ],
)
def test_other_origins_are_refused(origin: str, client: Any) -> None:
    refused(post(client, "/api/pass", {"text": "a"}, origin=origin), 403)
    refused(client.get("/api/model", headers={"origin": origin}), 403)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "Same-Origin", "none, same-origin"])
def test_requests_from_other_sites_are_refused(site: str, client: Any) -> None:
    refused(client.get("/", headers={"sec-fetch-site": site}), 403)
    refused(post(client, "/api/pass", {"text": "a"}, **{"sec-fetch-site": site}), 403)


def test_what_computes_needs_the_token(client: Any) -> None:
    for path in ("/api/pass", "/api/tensors", "/api/worth", "/api/guesses"):
        for token in ("", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"):
            headers = {**GOOD, "x-clearhead-token": token.encode("utf-8")}
            refused(client.post(path, content=b'{"text": "a"}', headers=headers), 403)
        headers = {name: value for name, value in GOOD.items() if name != "x-clearhead-token"}
        refused(client.post(path, content=b'{"text": "a"}', headers=headers), 403)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"]
)
def test_only_json_is_read(kind: str, client: Any) -> None:
    """What a form or a script of another site can send without asking first."""
    refused(post(client, "/api/pass", {"text": "a"}, **{"content-type": kind}), 415)


def test_a_header_sent_twice_is_refused(client: Any) -> None:
    twice = [*GOOD.items(), ("host", "evil.example")]
    refused(client.post("/api/pass", content=b"{}", headers=twice), 400)
    refused(client.post("/api/pass", content=b"{}", headers=[*GOOD.items(), ("origin", "a"), ("origin", "b")]), 400)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"])
def test_other_methods_are_refused(method: str, client: Any) -> None:
    refused(client.request(method, "/api/pass", headers=GOOD), 405)


def test_each_path_has_its_method(client: Any) -> None:
    refused(client.get("/api/pass"), 405)
    refused(post(client, "/api/model", {}), 405)
    assert client.head("/").status_code == 200


def test_long_bodies_are_refused(client: Any) -> None:
    just = b'{"text": "' + b"a" * (MOST_BYTES - 12) + b'"}'
    assert len(just) == MOST_BYTES
    refused(post(client, "/api/pass", just), 400)  # read, and too many letters
    refused(post(client, "/api/pass", just + b" "), 413)

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 4096

    refused(client.post("/api/pass", content=pieces(), headers=GOOD), 413)  # chunked: no length is told before
    refused(post(client, "/api/pass", b"{}", **{"content-length": "9" * 30}), 413)
    refused(post(client, "/api/pass", b"{}", **{"content-length": "-1"}), 400)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/page/../session.py",
            "/page/..%2fsession.py",
            "/page/%2e%2e/session.py",
            "/page/..%5csession.py",
            "/etc/passwd",
        ),
        *(
            "/page//etc/passwd",
            "/page/index.html",
            "/page/.hidden.js",
            "/page/main.js%00.css",
            "/page/",
            "/page/nothing.js",
        ),
        *("/page/main.js/", "/api/", "/api/nothing", "/page/MAIN.JS", "/page/config.toml", "/%00"),
    ],
)
def test_nothing_else_of_the_file_system(path: str, client: Any) -> None:
    answer = client.get(path)
    assert answer.status_code == 404, answer.text
    refused(answer, 404)


BODIES: list[bytes] = [
    *(b"", b"null", b"[]", b"5", b'"text"', b"{", b"\xff\xfe", b'{"text": "a"', b'{"text": NaN}', b'{"text": "a",}'),
    *(
        b'{"text": 1e999}',
        b"[" * 50_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"text": "\\ud800"}',
        b"\xef\xbb\xbf{}",
    ),
    b'{"text": "a", "answer": [' + b"9" * 5000 + b"]}",
    b'{"text": "a", "search": {"seed": ' + b"9" * 4000 + b"}}",
    b'{"text": "a", "search": {"temperature": 1e308, "kind": "sample"}}',
    b'{"text": "a", "edits": {"off": [null]}}',
    b'{"text": "a", "edits": {"force": [[true, false]]}}',
    b'{"text": "a", "edits": {"force": {"0": 1}}}',
    b'{"text": "a", "checkpoint": "step_99999999999999999999"}',
    b'{"text": "a", "checkpoint": "../../../etc/passwd"}',
    b'{"text": "a", "checkpoint": "\\u0000"}',
    b'{"text": "\\u0000\\u0001<script>alert(1)</script>"}',
    b'{"text": "a", "id": "x", "wanted": []}',
    b'{"id": "x"}',
    b'{"id": ["x"], "wanted": {}}',
]


@pytest.mark.parametrize("path", ["/api/pass", "/api/tensors", "/api/worth", "/api/guesses"])
def test_odd_bodies(path: str, client: Any) -> None:
    for body in BODIES:
        answer = post(client, path, body)
        if answer.status_code != 200:
            refused(answer, 400)


def test_fuzzed_bodies(client: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Bodies like real ones with pieces changed: answered or refused in one line, and nothing fails inside."""
    chance = random.Random(1)
    made = post(client, "/api/pass", {"text": "the cat"}).json()
    real: dict[str, dict[str, Any]] = {
        "/api/pass": {
            "text": "the cat",
            "edits": {"force": [[0, 5]], "off": ["decoder.1.self.1"], "even": ["encoder.1.self.2"], "sw": ["scale"]},
            "search": {"kind": "sample", "beam_size": 2, "temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 3},
            "answer": [5, 6],
            "look": "scoring",
            "keep": False,
            "max_tokens": 2,
        },
        "/api/tensors": {"id": made["id"], "wanted": [{"name": "output.logits", "index": [0, 1], "pool": 4}]},
        "/api/worth": {"id": made["id"]},
    }
    odd: list[Any] = [
        *(
            None,
            True,
            -1,
            0,
            1,
            10**30,
            0.5,
            -1e300,
            "",
            "x",
            "\x00",
            "decoder.1.self.1",
            [],
            [[]],
            {},
            {"a": 1},
            [1, "a"],
        ),
        *("beam", "greedy", "mask", [[0, 0]], "output.logits", "model:output.bias", [0, 0, 0, 0, 0], 1 << 40, "é" * 50),
    ]

    def changed(value: Any) -> Any:
        if chance.random() < 0.15:
            return chance.choice(odd)
        if isinstance(value, dict):
            return {key: changed(one) for key, one in value.items() if chance.random() > 0.05}
        if isinstance(value, list):
            return [changed(one) for one in value] * chance.choice([1, 1, 1, 2, 0])
        return value

    statuses = set()
    for _ in range(120):
        path = chance.choice(list(real))
        answer = post(client, path, changed(real[path]))
        statuses.add(answer.status_code)
        if answer.status_code != 200:
            refused(answer, 400)
    assert statuses == {200, 400}
    assert "Traceback" not in capfd.readouterr().err


def test_a_failure_inside_stays_in_the_terminal(
    client: Any, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(asked: object) -> None:
        raise RuntimeError("the secret of /home/user")

    monkeypatch.setattr(session, "read", broken)
    refused(post(client, "/api/pass", {"text": "a"}), 500)
    assert "the secret of /home/user" in capfd.readouterr().err


def test_websockets_are_closed(client: Any) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/pass"):
        pass


def test_listens_on_loopback_only() -> None:
    sockets = listen(0)
    addresses = {one.getsockname()[0] for one in sockets}
    assert "127.0.0.1" in addresses
    assert addresses <= {"127.0.0.1", "::1"}
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        one.close()


def test_a_real_socket(session: Session) -> None:
    """The same through uvicorn: malformed HTTP does not reach the application, and the page is answered."""
    import uvicorn

    sockets = listen(0)
    port = sockets[0].getsockname()[1]
    app = create_app(session, port, TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", server_header=False, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        assert raw(port, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 200"
        )
        assert raw(port, "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 403"
        )
        assert raw(port, "GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403")  # no host at all
        for odd in (
            "\x00\x01\x02\r\n\r\n",
            "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "POST / HTTP/9\r\n\r\n",
        ):
            assert b"Traceback" not in raw(port, odd)
    finally:
        server.should_exit = True
        thread.join(30)


def raw(port: int, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(text.encode("latin-1"))
        link.settimeout(5)
        found = b""
        try:
            while piece := link.recv(65536):
                found += piece
        except TimeoutError:
            pass
        return found


def test_the_script_is_every_module_of_the_page(client: Any) -> None:
    """As they stand on the disk, joined: one request, where each module by itself would be forty."""
    folder = Path(__file__).resolve().parents[2] / "clearhead" / "explore" / "page"
    assert client.get("/page/style.css").content == (folder / "style.css").read_bytes()
    script = client.get("/page/main.js").text
    for path in folder.glob("*.js"):
        lines = [line.removeprefix("export ") for line in path.read_text(encoding="utf-8").rstrip().splitlines()]
        assert "\n".join(lines[-2:]) in script, path.name
        if path.name != "main.js":
            refused(client.get(f"/page/{path.name}"), 404)
