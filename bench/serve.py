"""What decoding together brings: `clearhead serve` side by side with the same model behind a plain server.

`make bench-serve` (`python -m bench.serve`, `--only base`, `--rounds 5`). The plain one answers one request after the
other (http.server, a lock around `LoadedModel.translate`). Both run as processes of their own with as many threads; the
load comes from a further one: 1, 8 and 32 clients on kept connections that ask again as soon as they are answered,
bounded in count and time. Rounds are interleaved. Every answer of one side must be that of the other: same text, score
within 1e-3. The demo model is a run of the recipe `dates` (trained first if it is not there), base is the preset with
untrained weights, whose translations are as long as their sources.
"""

import argparse
import http.client
import http.server
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.measure import Contestant, speed_ratio

CLIENTS = (1, 8, 32)
SECONDS = 120  # the most that one measurement may take


def base_run(path: Path) -> Path:
    """The base preset with random weights and 37,000 made-up words."""
    import tomli_w
    import torch

    from clearhead.model import build, configure
    from clearhead.run import write_checkpoint
    from clearhead.settings import to_dict
    from clearhead.tokenizer import SPECIAL, train

    chance = random.Random(1)
    words = sorted({"".join(chance.choices("abcdefghijklmnopqrst", k=6)) for _ in range(30_000)})
    tokenizer = train([" ".join(words)] * 2, 37_000, special=SPECIAL, workers=1)
    torch.manual_seed(1)
    model = build(configure("base", vocab_size=tokenizer.size)).eval()
    path.mkdir(parents=True)
    settings = {"model": to_dict(model.config), "decoding": {"max_extra": 0}}
    (path / "config.toml").write_text(tomli_w.dumps(settings))
    tokenizer.save(path / "tokenizer.json")
    write_checkpoint(path / "checkpoints" / "step_00000001", {"model.safetensors": model.state_dict()}, {"step": 1})
    (path / "latest").write_text("step_00000001\n")
    (path / "texts.json").write_text(json.dumps([" ".join(chance.choices(words, k=5)) for _ in range(256)]))
    return path


def demo_texts(run: Path) -> list[str]:
    from clearhead.data.settings import DataSettings
    from clearhead.data.splits import build as build_data
    from clearhead.run import Run
    from clearhead.settings import from_dict
    from clearhead.tokenizer import load as load_tokenizer

    settings = from_dict(DataSettings, Run(run).settings["data"], "data.")
    test: Any = build_data(settings, load_tokenizer(run / "tokenizer.json")).test
    return [test.written[number].text for number in range(256)]


def plain(run: str, threads: int) -> None:
    """The peer: one after the other."""
    import clearhead

    loaded = clearhead.load(run, threads=threads)
    turn = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with turn:
                (found,) = loaded.translate(asked["text"])
            best = {"text": found.text, "score": found.score}
            body = json.dumps({"results": [{"translations": [best]}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    print(f"serving one at a time at http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


def load(port: int, clients: int, texts: Sequence[str]) -> dict[str, Any]:
    """All texts, asked by so many clients: seconds in all, seconds of each, answers."""
    waits, answers = [0.0] * len(texts), [None] * len(texts)
    left, lock = iter(range(len(texts))), threading.Lock()
    until = time.monotonic() + SECONDS

    def client() -> None:
        talk = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        while time.monotonic() < until:
            with lock:
                number = next(left, None)
            if number is None:
                break
            began = time.perf_counter()
            body = json.dumps({"text": texts[number]})
            talk.request("POST", "/translate", body, {"content-type": "application/json"})
            answer = talk.getresponse()
            found = json.loads(answer.read())
            assert answer.status == 200, found
            waits[number], answers[number] = time.perf_counter() - began, found["results"][0]["translations"][0]
        talk.close()

    crowd = [threading.Thread(target=client) for _ in range(clients)]
    began = time.perf_counter()
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    return {"seconds": time.perf_counter() - began, "waits": waits, "answers": answers}


class Process:
    """A server and its port."""

    def __init__(self, words: list[str], log: Path) -> None:
        with log.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-m", *words], stderr=file)
        found = None
        while not found:
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.1)
            found = re.search(r"serving .* at http://127.0.0.1:(\d+)", log.read_text())
        self.port = int(found[1])

    def ask(self, clients: int, texts: Sequence[str]) -> dict[str, Any]:
        words = [sys.executable, "-m", "bench.serve", "--load", str(self.port), str(clients)]
        said = subprocess.run(words, input=json.dumps(texts), capture_output=True, text=True, check=True)
        return dict(json.loads(said.stdout))


def same(first: list[Any], second: list[Any]) -> None:
    for one, other in zip(first, second, strict=True):
        assert one is not None, f"not finished within {SECONDS} s"
        assert other is not None, f"not finished within {SECONDS} s"
        assert one["text"] == other["text"], (one, other)
        assert abs(one["score"] - other["score"]) < 1e-3, (one, other)


def quantile(waits: list[float], share: float) -> float:
    return 1000 * sorted(waits)[min(len(waits) - 1, int(share * len(waits)))]


def compare(name: str, run: Path, texts: Sequence[str], rounds: int, threads: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        words = ["clearhead", "serve", str(run), "--port", "0", "--no-page", "--threads", str(threads)]
        ours = Process(words, logs / "ours")
        peer = Process(["bench.serve", "--plain", str(run), str(threads)], logs / "plain")
        try:
            print(f"\n{name}: /translate, {threads} threads, {rounds} interleaved rounds")
            for clients in CLIENTS:
                some = list(texts[: max(count, 2 * clients)])
                sides = {"clearhead serve": (ours, Contestant("ours", lambda: None), list[float]()),
                         "one at a time": (peer, Contestant("plain", lambda: None), list[float]())}  # fmt: skip
                for number in range(rounds + 1):  # the first warms up
                    answers = []
                    for server, contestant, waits in list(sides.values())[:: 1 if number % 2 else -1]:
                        found = server.ask(clients, some)
                        answers.append(found["answers"])
                        if number:
                            contestant.seconds.append(found["seconds"])
                            waits += found["waits"]
                    same(*answers)
                for side, (_, contestant, waits) in sides.items():
                    each = len(some) / statistics.median(contestant.seconds)
                    times = f"p50 {quantile(waits, 0.5):8.1f} ms   p99 {quantile(waits, 0.99):8.1f} ms"
                    print(f"  {clients:2} clients  {side:<16}{each:8.1f} requests/s   {times}", flush=True)
                ratio, low, high = speed_ratio(sides["clearhead serve"][1], sides["one at a time"][1])
                print(f"  {clients:2} clients  ratio {ratio:.2f}x  [{low:.2f}, {high:.2f}]", flush=True)
        finally:
            for server in (ours, peer):
                server.process.kill()
                server.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["demo", "base"])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="a run of the recipe dates")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--count", type=int, help="requests of a measurement, at least; 16 for base, 256 for demo")
    parser.add_argument("--plain", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--load", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plain:
        plain(asked.plain[0], int(asked.plain[1]))
    elif asked.load:
        print(json.dumps(load(asked.load[0], asked.load[1], json.load(sys.stdin))))
    else:
        from clearhead.machine import machine

        print(machine())
        if asked.only != "base":
            if not asked.run.exists():
                words = [sys.executable, "-m", "clearhead", "train", "dates", "--run", str(asked.run)]
                subprocess.run(words, check=True)
            compare("demo", asked.run, demo_texts(asked.run), asked.rounds, asked.threads, asked.count or 256)
        if asked.only != "demo":
            with tempfile.TemporaryDirectory() as folder:
                run = base_run(Path(folder) / "base")
                texts = json.loads((run / "texts.json").read_text())
                compare("base", run, texts, asked.rounds, asked.threads, asked.count or 16)


if __name__ == "__main__":
    main()
