"""This checkout beside another one of Clearhead, in one run: did decoding or training get slower?

    python -m bench.before ../clearhead-at-v0.1              decoding and training, about ten minutes
    python -m bench.before ../clearhead-at-v0.1 decode tiny  only decoding, only this size

The other checkout's package is copied to a temporary folder under the name `clearhead_before`, so that both run in one
process, interleaved, with the same weights and inputs. Outputs must agree before anything is timed.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from bench.measure import Contestant, compete, report, torch_threads
from clearhead.machine import machine

VOCABULARY, SOURCE, NEW, START, END = 10_000, 16, 40, 1, 2
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 128, "heads": 4, "d_ff": 256, "encoder_layers": 4, "decoder_layers": 4},
    "base": {"d_model": 512, "heads": 8, "d_ff": 2048, "encoder_layers": 6, "decoder_layers": 6},
}


def rename(checkout: Path, folder: Path) -> None:
    """A copy of the other checkout's package that calls itself `clearhead_before`."""
    shutil.copytree(checkout / "clearhead", folder / "clearhead_before", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "clearhead_before").rglob("*.py"):
        path.write_text(re.sub(r"\bclearhead(?=[.\s\"'])", "clearhead_before", path.read_text()))
    sys.path.insert(0, str(folder))


class Side:
    """One of the two packages, with a model of the same weights."""

    def __init__(self, package: str, size: str, state: Any = None) -> None:
        self.package = package
        model = self.part("model")
        torch.manual_seed(0)
        self.model = model.build(
            model.configure(vocab_size=VOCABULARY, dropout=0.0, head={"bias": True}, **SIZES[size])
        )
        if state is None:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    if parameter.dim() == 2:  # strong enough that choices are clear, and no token repeats for ever
                        parameter.copy_(2 * torch.randn_like(parameter) * parameter.size(1) ** -0.5)
        else:
            self.model.load_state_dict(state)
        self.model.eval()
        try:
            self.fast = self.part("decoding.fast_steps").FastDecoding(self.model)
        except ModuleNotFoundError:  # its name until version 0.1
            self.fast = self.part("decoding.engine").Engine(self.model)

    def part(self, name: str) -> Any:
        return import_module(f"{self.package}.{name}")

    def decode(self, source: torch.Tensor, beam: int) -> list[list[int]]:
        batch = len(source)
        constraints = self.part("decoding.constraints").Constraints(min_length=NEW)
        prompts, limits = [[START]] * batch, [NEW] * batch
        with torch.inference_mode():
            steps = self.fast.steps(source)
            if beam == 1:
                greedy = self.part("decoding.greedy").greedy
                return [h.tokens for h in greedy(steps, prompts, limits, END, constraints, with_log_probs=False)]
            search = self.part("decoding.beam")
            how = search.BeamSearch(beam, 1.0, "power", refill=True, constraints=constraints)
            return [pool[0].tokens for pool in search.beam_search(steps, prompts, limits, END, how)]

    def train(self, source: torch.Tensor, target: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """A pass forward and backward, with the package's own loss."""
        self.model.zero_grad(set_to_none=True)
        hidden = self.model.hidden(source, target, real)
        loss: torch.Tensor = self.part("training.loss").summed_loss(self.model, hidden, target, 0.1)
        loss.backward()
        return loss.detach()


def compare(size: str, what: set[str], rounds: int) -> None:
    now = Side("clearhead", size)
    before = Side("clearhead_before", size, now.model.state_dict())
    torch.manual_seed(1)
    for batch, beam in ((1, 1), (32, 1), (32, 4)) if "decode" in what else ():
        source = torch.randint(4, VOCABULARY, (batch, SOURCE))
        assert now.decode(source, beam) == before.decode(source, beam), "the two decode differently"
        sides = [partial(side.decode, source, beam) for side in (now, before)]
        race(f"decoding, {size}, batch {batch}, beam {beam}", sides, batch * NEW, rounds // (3 if beam > 1 else 1))
    for batch, length in ((64, 24), (8, 200)) if "train" in what else ():
        source, target = torch.randint(4, VOCABULARY, (2, batch, length))
        real = torch.arange(length) < torch.randint(length // 2, length + 1, (batch, 1))
        passes = [partial(side.train, source, target, real) for side in (now, before)]
        torch.testing.assert_close(passes[0](), passes[1](), rtol=1e-4, atol=1e-4)
        race(f"forward and backward, {size}, {batch} x {length}", passes, batch * length, rounds // 2)


def race(title: str, sides: Sequence[Callable[[], object]], tokens: int, rounds: int) -> None:
    names = ("this checkout", "the other")
    ours, peer = (Contestant(name, side, torch_threads) for name, side in zip(names, sides, strict=True))
    compete([ours, peer], max(5, rounds))
    report(title, ours, [peer], "tokens/s", tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the folder of the other checkout")
    parser.add_argument("what", nargs="*", help="decode, train, tiny, base; all unless given")
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        rename(chosen.checkout.resolve(), Path(folder))
        for size in [size for size in SIZES if size in chosen.what] or SIZES:
            compare(size, {"decode", "train"} & set(chosen.what) or {"decode", "train"}, chosen.rounds)


if __name__ == "__main__":
    main()
