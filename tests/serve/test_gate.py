"""Who may ask, and for what: each line of what docs/serve.md says is protected, against a real process."""

import socket
from pathlib import Path

import pytest

from tests.serve.processes import JSON, Served, ask, refused, serving


def test_the_page_is_there(served: Served) -> None:
    assert "<html" in ask.get(served.url).text
    assert ask.get(f"{served.url}/api/model").json()["format"] == "clearhead-explore-1"


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
    options = ["--token-file", str(tmp_path / "token"), "--cors", "https://good.example", "--log-bodies"]
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
        assert ask.get(f"{made.url}/healthz", headers={**right, "host": "models.lan"}).status_code == 200
        for name in ("127.0.0.1", "localhost", "[::1]"):
            refused(ask.get(f"{made.url}/healthz", headers={**right, "host": f"{name}:{made.port}"}), 403)
        assert "seen in the log" in made.said()
        assert token not in made.said()
