"""The reverse proxy of docs/serve.md: nginx with that very block, before a real server. Skipped where there is none."""

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.serve.processes import serving
from tests.test_docs import ROOT, blocks

TOKEN = "0123456789abcdef"
NAME = "models.example.org"
AROUND = """daemon off; pid {here}/pid; error_log {here}/errors; events {{}}
http {{ access_log off; client_body_temp_path {here}/a; proxy_temp_path {here}/b; fastcgi_temp_path {here}/c;
uwsgi_temp_path {here}/d; scgi_temp_path {here}/e;
{block}
}}
"""
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or shutil.which("nginx")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nginx did not start")


@pytest.fixture
def proxied(runs: list[Path], tmp_path: Path) -> Iterator[httpx.Client]:
    """A client whose requests go to nginx, by TLS and under the name that the page of the manual gives it."""
    (block,) = blocks(ROOT / "docs" / "serve.md", "nginx")
    (tmp_path / "token").write_text(TOKEN)
    pem, key, port = tmp_path / "pem", tmp_path / "key", free_port()
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(pem)]
    subprocess.run([*words, "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"], check=True)
    with serving(runs[1:2], "--token-file", str(tmp_path / "token"), "--allow-host", NAME) as made:
        here = {
            "listen 443": f"listen 127.0.0.1:{port}",
            "127.0.0.1:8028": f"127.0.0.1:{made.port}",
            f"/etc/ssl/{NAME}.pem": str(pem),
            f"/etc/ssl/{NAME}.key": str(key),
        }
        for theirs, ours in here.items():
            assert block.count(theirs) == 1
            block = block.replace(theirs, ours)
        (tmp_path / "conf").write_text(AROUND.format(here=tmp_path, block=block))
        assert NGINX is not None
        nginx = subprocess.Popen([NGINX, "-c", tmp_path / "conf", "-p", tmp_path])
        try:
            wait_for(port, nginx)
            trust = ssl.create_default_context(cafile=str(pem))
            to = {"headers": {"host": NAME}, "base_url": f"https://127.0.0.1:{port}"}
            with httpx.Client(verify=trust, timeout=30, **to) as client:  # type: ignore[arg-type]
                client.event_hooks = {"request": [lambda asked: asked.extensions.update(sni_hostname=NAME)]}
                yield client
        finally:
            nginx.terminate()
            nginx.wait(20)


@pytest.mark.long
@pytest.mark.skipif(NGINX is None, reason="no nginx")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_the_documented_proxy(proxied: httpx.Client) -> None:
    assert proxied.get("/v1/models").status_code == 401
    through: Any = proxied  # the official client has another name for its class
    headers = {"host": NAME}
    client = openai.OpenAI(
        base_url=f"{proxied.base_url}/v1", api_key=TOKEN, http_client=through, default_headers=headers
    )
    assert [one.id for one in client.models.list()] == ["text"]
    whole = client.completions.create(model="text", prompt="the", seed=3, max_tokens=20).choices[0].text
    pieces = [
        event.choices[0].text
        for event in client.completions.create(model="text", prompt="the", seed=3, max_tokens=20, stream=True)
    ]
    assert "".join(pieces) == whole
    large = proxied.post("/v1/completions", content=b" " * 70_000, headers={"authorization": f"Bearer {TOKEN}"})
    assert large.status_code == 413
    foreign = {"authorization": f"Bearer {TOKEN}", "origin": "https://evil.example"}
    assert proxied.get("/v1/models", headers=foreign).status_code == 403
