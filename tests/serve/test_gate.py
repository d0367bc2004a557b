"""Who may ask, and for what: each line of what docs/serve.md says is protected, against a real process."""

import socket
import time
from pathlib import Path

import pytest

from clearhead.errors import InputError
from clearhead.serve.server import MOST_CONNECTIONS, bound, names
from tests.serve.processes import JSON, Served, ask, refused, serving


def test_the_page_is_there(served: Served) -> None:
    assert "<html" in ask.get(served.url).text
    assert ask.get(f"{served.url}/api/model").json()["format"] == "clearhead-explore-1"


def test_what_is_neither_the_page_nor_the_api(served: Served) -> None:
    """As a client gets it that was told of an address without /v1."""
    for path in ("/completions", "/v1", "/v1/completions/", "/pages", "/favicon.ico"):
        assert refused(served.post(path, {}), 404) == "there is nothing here"
        refused(ask.get(served.url + path), 404)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:80", "[::1]", ""])
def test_other_hosts_are_refused(host: str, served: Served) -> None:
    for path in ("/v1/models", "/healthz", "/openapi.json"):
        refused(ask.get(served.url + path, headers={"host": host}), 403)
    refused(ask.post(f"{served.url}/translate", json={"text": "a"}, headers={"host": host}), 403)


def test_our_own_names(served: Served) -> None:
    for name in ("127.0.0.1", "localhost", "[::1]"):
        answer = ask.get(f"{served.url}/healthz", headers={"host": f"{name}:{served.port}"})
        assert answer.status_code == 200


def test_other_sites_methods_types_and_sizes_are_refused(served: Served) -> None:
    url = f"{served.url}/translate"
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        refused(ask.post(url, json={"text": "a"}, headers=headers), 403)
        refused(ask.get(f"{served.url}/v1/models", headers=headers), 403)
    preflight = ask.options(url, headers={"origin": "https://evil.example", "access-control-request-method": "POST"})
    refused(preflight, 403)
    assert "access-control-allow-origin" not in preflight.headers
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = ask.request(method, url)
        refused(answer, 405)
        assert method == "OPTIONS" or answer.headers["allow"] == "POST"
    refused(ask.post(f"{served.url}/v1/models", json={}), 405)
    refused(ask.post(f"{served.url}/v1/models"), 405)  # before anything is said of a body
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        refused(ask.post(url, content=b'{"text": "a"}', headers={"content-type": kind}), 415)
    assert served.post("/translate", {"text": " " * 65_000}).status_code in (200, 400)
    refused(served.post("/translate", {"text": " " * 66_000}), 413)
    parts = (b" " * 1000 for _ in range(80))  # without a length
    refused(ask.post(url, content=parts, headers=JSON), 413)


def test_a_body_far_too_large_is_refused_to_those_who_send_it_whole(served: Served) -> None:
    """Closed while they write, many clients would see a broken connection and no reason."""
    body = b" " * 10_000_000
    head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")
        raw.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        assert b"HTTP/1.1 200 " in raw.recv(4096)


@pytest.mark.parametrize(("address", "port", "wanted"), [
    ("127.0.0.1", 80, {"127.0.0.1", "localhost", "[::1]", "127.0.0.1:80", "localhost:80", "[::1]:80"}),
    ("2001:DB8::7", 80, {"[2001:db8::7]", "[2001:db8::7]:80", "models.lan"}),
    ("models.LAN", 8028, {"models.lan:8028", "models.lan"}),
    ("0.0.0.0", 80, {"models.lan"}),
])  # fmt: skip
def test_the_names_of_an_address(address: str, port: int, wanted: set[str]) -> None:
    """On port 80 clients leave the port out."""
    assert names(address, port, [] if address == "127.0.0.1" else ["Models.lan"]) == wanted


def test_loopback_of_version_6_or_a_word_about_it() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as taken:
        try:
            taken.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        taken.listen()
        with pytest.raises(InputError, match=r"cannot listen on ::1:\d+: .* another program has the port"):
            bound("::1", taken.getsockname()[1])


def test_one_connection_too_many_is_told_so(served: Served) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("too few files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    crowd = []
    try:
        for _ in range(MOST_CONNECTIONS):
            crowd += [socket.create_connection(("127.0.0.1", served.port), 10)]
        answer = ask.get(f"{served.url}/healthz")
        assert "connections are open" in refused(answer, 503)
        assert answer.headers["retry-after"] == "5"
    finally:
        for one in crowd:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for _ in range(100):
        if ask.get(f"{served.url}/healthz").status_code == 200:
            return
        time.sleep(0.05)
    raise AssertionError("closed connections still count")


PLACES = [
    "/../../../../etc/passwd",
    "/page/../server.py",
    "/page/..%2f..%2f..%2fetc%2fpasswd",
    "/page/%2e%2e/session.py",
    "/config.toml",
    "/checkpoints/step_00000001/model.safetensors",
    "/v1/../config.toml",
    "/v1/models/..%2f..%2fetc%2fpasswd",
    "/v1/models//etc/passwd",
    "//etc/passwd",
    "http://evil.example/etc/passwd",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_path_leads_to_a_file(place: str, served: Served) -> None:
    """Written to the socket as it stands: a client would tidy it up."""
    with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
        raw.sendall(f"GET {place} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n".encode())
        said = b""
        while piece := raw.recv(65536):
            said += piece
    assert said.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")), said
    assert not any(word in said for word in (b"root:", b"import", b"vocab_size", b"config.toml"))


@pytest.mark.parametrize("name", ["../pairs", "/etc", "pairs/", "pairs/../pairs", "./pairs", "PAIRS", "pairs\0"])
def test_a_model_is_a_name_and_no_path(name: str, served: Served) -> None:
    assert "no model" in refused(served.post("/translate", {"text": "a", "model": name}), 404)


def test_what_is_asked_is_not_logged(served: Served) -> None:
    secret = "a word that nobody else says"
    served.post("/translate", {"text": secret})
    refused(served.post("/translate", {"text": secret, secret: 1}), 400)
    refused(served.post("/v1/completions", {"model": secret}), 404)
    assert "POST /translate 400" in served.said()
    assert secret not in served.said()


def test_a_token_is_needed_everywhere_if_there_is_one(runs: list[Path], tmp_path: Path) -> None:
    token = "0123456789abcdef-secret"
    (tmp_path / "token").write_text(token + "\n")
    options = ["--token-file", str(tmp_path / "token"), "--cors", "https://Good.example", "--log-bodies"]
    options += ["--address", "127.0.0.2", "--allow-host", "models.lan"]  # any address but loopback's usual ones
    with serving(runs[1:2], *options) as made:
        for headers in (
            {},
            {"authorization": "Bearer x"},
            {"authorization": token},
            {"authorization": f"Basic {token}"},
        ):
            for path in ("/v1/models", "/healthz", "/", "/api/model", "/openapi.json"):
                answer = ask.get(made.url + path, headers=headers)
                refused(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        right = {"authorization": f"Bearer {token}"}
        refused(ask.get(made.url, headers=right), 404)  # no page: a browser cannot send the token
        asked = {"model": "text", "prompt": "seen in the log", "max_tokens": 2}
        answer = made.post("/v1/completions", asked, headers={**right, "origin": "https://good.example"})
        assert answer.headers["access-control-allow-origin"] == "https://good.example"
        preflight = ask.options(f"{made.url}/v1/completions", headers={"origin": "https://good.example"})
        assert (preflight.status_code, preflight.headers["access-control-allow-methods"]) == (204, "GET, POST")
        # `*` alone would not allow the token; the official client sends headers of its own
        assert preflight.headers["access-control-allow-headers"] == "authorization, *"
        wrong = ask.get(f"{made.url}/v1/models", headers={"origin": "https://good.example"})
        refused(wrong, 401)
        assert wrong.headers["access-control-allow-origin"] == "https://good.example"  # its page may read why
        assert ask.get(f"{made.url}/healthz", headers={**right, "host": "models.lan"}).status_code == 200
        for name in ("127.0.0.1", "localhost", "[::1]"):
            refused(ask.get(f"{made.url}/healthz", headers={**right, "host": f"{name}:{made.port}"}), 403)
        assert "seen in the log" in made.said()
        assert token not in made.said()
