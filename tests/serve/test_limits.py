"""A real process under load and under attack: every answer as if alone, refusals as documented, a clean end."""

import hashlib
import http.client
import json
import random
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import clearhead
from tests.serve.processes import JSON, Served, ask, refused, serving


def fingerprint(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_answer_under_load_is_the_one_alone(served: Served, runs: list[Path]) -> None:
    chance = random.Random(3)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "x", "yz"]
    texts = [" ".join(chance.choices(words, k=chance.randrange(1, 9))) for _ in range(40)]
    pairs, text, vectors = (clearhead.load(run, threads=1) for run in runs[:3])
    films = clearhead.load(runs[4], threads=1)
    asked: list[tuple[str, Any, Any]] = []
    for number, one in enumerate(texts):
        beams: dict[str, Any] = {"beam_size": 1 + number % 3}
        alone = pairs.translate(one, **beams)[0]
        asked.append(("/translate", {"text": one, **beams}, (alone.text, alone.log_prob)))
        how: dict[str, Any] = {"temperature": 0.5 * (number % 3), "seed": number, "max_tokens": 5 + number % 20}
        made = text.generate(one, **how)[0]
        body = {"model": "text", "prompt": one, "logprobs": 0, **how}
        asked.append(("/v1/completions", body, (made.text, made.log_probs[: len(made.tokens)])))
        mean = vectors.encode([one])[0].mean(0)
        asked.append(("/v1/embeddings", {"model": "vectors", "input": one}, (mean / mean.norm()).tolist()))
        asked.append(("/predict", {"text": one}, films.predict([one])[0].probability))
    chance.shuffle(asked)
    with httpx.Client(timeout=60, verify=False) as client, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda one: client.post(served.url + one[0], json=one[1]).json(), asked))
    for (path, _, wanted), answer in zip(asked, found, strict=True):
        if path == "/translate":
            best = answer["results"][0]["translations"][0]
            assert (best["text"], best["log_prob"]) == (wanted[0], pytest.approx(wanted[1], abs=1e-4))
        elif path == "/v1/completions":
            choice = answer["choices"][0]
            assert choice["text"] == wanted[0]
            assert choice["logprobs"]["token_logprobs"] == pytest.approx(wanted[1], abs=1e-4)
        elif path == "/predict":
            result = answer["results"][0]
            assert result["probabilities"][result["label"]] == pytest.approx(wanted, abs=1e-5)
        else:
            assert answer["data"][0]["embedding"] == pytest.approx(wanted, abs=1e-5)


def test_translations_with_all_that_is_known_of_them(served: Served, runs: list[Path]) -> None:
    loaded = clearhead.load(runs[0], threads=1)
    wanted = loaded.translate("the cat sat", n_best=3, alignment=True)[0]
    asked = {"text": ["the cat sat", "x" * 500], "n_best": 3, "alignment": True}
    one, long = served.post("/translate", asked).json()["results"]
    assert [found["text"] for found in one["translations"]] == [wanted.text, *(other.text for other in wanted.others)]
    assert one["translations"][2]["score"] == pytest.approx(wanted.others[1].score, abs=1e-4)
    assert wanted.alignment is not None
    assert [(link["target"], link["source"]) for link in one["alignment"]["links"]] == [
        (link.target, link.source) for link in wanted.alignment.links
    ]
    assert len(one["alignment"]["target"]) == len(wanted.tokens)
    assert (one["source_cut"], long["source_cut"]) == (False, True)
    assert "n_best must be from 1 to beam_size = 2" in refused(
        served.post("/translate", {"text": "a", "beam_size": 2, "n_best": 3}), 400
    )


def test_damaged_bodies_are_refused(served: Served) -> None:
    chance = random.Random(5)
    good = json.dumps({"model": "text", "prompt": "the", "max_tokens": 3, "stop": ["a"], "logprobs": 1}).encode()
    with httpx.Client(timeout=30, verify=False) as client:
        bodies = [b"", b"[]", b"null", b"1", b'"x"', b"{", b"[" * 60_000, b'{"a":NaN}', b"\xff\xfe", b'{"model":1e999}']
        for _ in range(150):
            damaged = bytearray(good)
            for _ in range(chance.randrange(1, 5)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            bodies.append(bytes(damaged))
        seen = set()
        for path in ("/v1/completions", "/v1/embeddings", "/translate", "/predict"):
            for body in bodies:
                answer = client.post(served.url + path, content=body, headers=JSON)
                seen.add(answer.status_code)
                if answer.status_code != 200:
                    refused(answer, answer.status_code)
    assert seen <= {200, 400, 404}
    lone = client_text(served, b'{"model": "text", "prompt": "\\ud800", "max_tokens": 2}')
    assert lone == 200


def client_text(served: Served, body: bytes) -> int:
    return ask.post(f"{served.url}/v1/completions", content=body, headers=JSON).status_code


def test_bytes_that_are_no_http(served: Served) -> None:
    for sent in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"POST /translate HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
            raw.sendall(sent)
            assert b"Traceback" not in raw.recv(4096)
    assert ask.get(f"{served.url}/healthz").json() == {"status": "ok", "waiting": 0}


def test_clients_that_vanish_leave_nothing_behind(served: Served) -> None:
    body = json.dumps({"model": "endless", "prompt": "the", "max_tokens": 2000, "stream": True})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    for number in range(20):
        with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
            whole = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
            raw.sendall(whole[: len(whole) - (number % 2) * 10])  # every second one leaves before its body is whole
            if number % 4 == 0:
                raw.recv(100)
    asked = {"model": "text", "prompt": "the", "temperature": 0, "max_tokens": 3}
    assert served.post("/v1/completions", asked).status_code == 200
    for _ in range(200):
        if ask.get(f"{served.url}/healthz").json()["waiting"] == 0:
            return
        time.sleep(0.05)
    raise AssertionError("texts of clients that left still wait")


def test_sigterm_finishes_what_is_under_way_and_refuses_the_rest(runs: list[Path]) -> None:
    before = fingerprint(runs[3])
    with serving(runs[3:4], "--batch", "1") as made:
        asked = {"model": "endless", "prompt": "the", "max_tokens": 1500, "temperature": 0}
        found: list[httpx.Response] = []
        asking = [threading.Thread(target=lambda: found.append(made.post("/v1/completions", asked))) for _ in range(3)]
        kept = http.client.HTTPConnection("127.0.0.1", made.port, timeout=20)
        for thread in asking:
            thread.start()
        while ask.get(f"{made.url}/healthz").json()["waiting"] < 2:
            time.sleep(0.005)
        made.process.send_signal(signal.SIGTERM)
        for thread in asking:
            thread.join(60)
        kept.close()
        assert sorted(answer.status_code for answer in found) == [200, 503, 503]
        (done,) = [answer for answer in found if answer.status_code == 200]
        assert done.json()["usage"]["completion_tokens"] == 1500
        assert all("retry-after" in answer.headers for answer in found if answer.status_code == 503)
        assert made.process.wait(30) == 0
        with pytest.raises(httpx.ConnectError):
            ask.get(made.url)
        assert "Traceback" not in made.said()
        assert "the" not in made.said().replace("/v1/completions", "").split()  # no bodies in the log
    assert fingerprint(runs[3]) == before


def test_a_second_ctrl_c_ends_it_at_once(runs: list[Path]) -> None:
    with serving(runs[3:4]) as made:
        body = {"model": "endless", "prompt": "the", "max_tokens": 2000, "stream": True, "n": 16}
        with ask.stream("POST", f"{made.url}/v1/completions", json=body) as answer:
            next(answer.iter_bytes())
            made.process.send_signal(signal.SIGINT)
            while not refuses(made.port):
                time.sleep(0.01)
            assert made.process.poll() is None  # what is under way goes on
            made.process.send_signal(signal.SIGINT)
            assert made.process.wait(20) == 130
        assert "Traceback" not in made.said()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_killed_server_harms_no_run(runs: list[Path]) -> None:
    before = fingerprint(runs[3])
    with serving(runs[3:4]) as made:
        body = {"model": "endless", "prompt": "the", "max_tokens": 2000, "stream": True}
        with ask.stream("POST", f"{made.url}/v1/completions", json=body) as answer:
            next(answer.iter_bytes())
            made.process.kill()
            made.process.wait(20)
    assert fingerprint(runs[3]) == before


def half_of_a_request(port: int, token: str) -> bytes:
    """To the page, which promises more than it brings."""
    head = f"POST /api/pass HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f'{head}X-Clearhead-Token: {token}\r\nContent-Length: 50\r\n\r\n{{"text":'.encode()


@pytest.mark.long
def test_clients_that_are_too_slow_are_cut_off(runs: list[Path]) -> None:
    """One sends its head byte by byte, one its body, one never reads, one says nothing and one writes to the page so
    slowly: all end, and others are answered meanwhile."""
    with serving(runs[3:4]) as made:
        body = json.dumps({"model": "endless", "prompt": "the", "max_tokens": 2000, "stream": True, "n": 16})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\nContent-Type: application/json\r\n"
        whole = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        slow, half, deaf, dumb, page = (socket.create_connection(("127.0.0.1", made.port), 10) for _ in range(5))
        token = re.search(r'content="([\w-]{32})"', ask.get(made.url).text)
        assert token
        page.sendall(half_of_a_request(made.port, token[1]))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        half.sendall(whole[:-5])
        deaf.sendall(whole)
        ended = None
        for number in range(60):
            try:
                slow.sendall(whole[number : number + 1])
            except OSError:
                ended = number
                break
            assert ask.get(f"{made.url}/healthz").status_code == 200
            time.sleep(1)
        assert ended is not None
        assert b" 408 " in half.recv(4096)
        assert b" 408 " in page.recv(4096)
        assert dumb.recv(4096) == b""
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(120) == 0


MIX: list[tuple[str, dict[str, Any]]] = [
    ("/translate", {"text": "the cat sat", "n_best": 2, "alignment": True}),
    ("/translate", {"text": ["a dog", ""], "beam_size": 1}),
    ("/v1/completions", {"model": "text", "prompt": "the", "max_tokens": 8, "logprobs": 3, "n": 2}),
    ("/v1/completions", {"model": "text", "prompt": "a", "max_tokens": 8, "stream": True, "stop": ["e"]}),
    ("/v1/embeddings", {"model": "vectors", "input": ["the cat", "a dog"]}),
    ("/predict", {"text": "a lovely film"}),
    ("/v1/completions", {"model": "endless", "prompt": "the", "max_tokens": 500, "stream": True}),  # and leaves
    ("/v1/completions", {"model": "nothing", "prompt": "the"}),
    ("/translate", {"text": "the", "tempreature": 1}),
]


def ask_many(port: int, numbers: range) -> None:
    """One client after the other of the mix, on a kept connection but for those that leave early."""
    talk = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in numbers:
        path, body = MIX[number % len(MIX)]
        talk.request("POST", path, json.dumps({**body, **({"seed": number} if "prompt" in body else {})}), JSON)
        answer = talk.getresponse()
        assert answer.status == (404 if body.get("model") == "nothing" else 400 if "tempreature" in body else 200)
        if body.get("model") == "endless":
            answer.read(20)
            answer.close()
            talk.close()
        else:
            answer.read()
    talk.close()


def held(process: int) -> tuple[int, int, int]:
    """Kilobytes, open files and threads of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    numbers = [int(re.findall(rf"{name}:\s+(\d+)", status)[0]) for name in ("VmRSS", "Threads")]
    return numbers[0], len(list(Path(f"/proc/{process}/fd").iterdir())), numbers[1]


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read off /proc")
def test_ten_thousand_requests_leave_nothing_behind(runs: list[Path]) -> None:
    """After a first thousand, in which pools and buffers fill, nothing grows any more."""
    with serving(runs, "--queue", "1000") as made, ThreadPoolExecutor(8) as pool:
        seen = []
        for _ in range(11):
            list(pool.map(lambda first: ask_many(made.port, range(first, 1000, 8)), range(8)))
            while ask.get(f"{made.url}/healthz").json()["waiting"]:
                time.sleep(0.01)
            time.sleep(0.5)  # connections are closed a little after their clients are
            seen.append(held(made.process.pid))
        print("kilobytes, files, threads after each thousand:", *seen)
        assert max(memory for memory, _, _ in seen[6:]) - max(memory for memory, _, _ in seen[1:6]) <= 2048, seen
        assert seen[-1][1] <= seen[0][1] + 2, seen
        assert seen[-1][2] <= seen[0][2] + 1, seen
        assert "Traceback" not in made.said()
