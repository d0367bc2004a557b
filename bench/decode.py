"""Decoding speed, side by side with CTranslate2 and `transformers.generate`: same weights, same lengths, same outputs.

    python -m bench.decode             all of it, about five minutes
    python -m bench.decode base tiny   only the comparison at these sizes
    python -m bench.decode positions   time per token far into a text, with and without the cache
    python -m bench.decode base cpu    processor time of one thread instead: says something on a busy machine, too

A random model of the size is made once, as a Marian model of `transformers`; our model and CTranslate2's get its
weights. All sides write exactly 40 tokens for sources of 16, greedily or with a beam of 4. Before anything is timed the
outputs are compared: a difference is allowed only where the choice was a near tie (margin below 1e-4).
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.measure import Contestant, compete, report, torch_threads
from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.fast_steps import FastDecoding
from clearhead.decoding.greedy import greedy
from clearhead.decoding.steps import ModelSteps
from clearhead.interop.export.to_ctranslate2 import specification
from clearhead.interop.families import read
from clearhead.machine import machine
from clearhead.model import DecoderOnly, EncoderDecoder, configure, count_parameters

VOCABULARY, SOURCE, NEW = 10_000, 16, 40
PAD, START, END = 0, 1, 2
SIZES = {
    "base": {"d_model": 512, "layers": 6, "heads": 8, "ffn": 2048},
    "tiny": {"d_model": 128, "layers": 4, "heads": 4, "ffn": 256},
}
WORDS = ["<pad>", "<s>", "</s>", "<unk>", *(str(i) for i in range(4, VOCABULARY))]  # CTranslate2 takes no ids
NUMBERS = {word: number for number, word in enumerate(WORDS)}
MARGIN = 1e-4


def their_model(size: str) -> Any:
    """A Marian model of `transformers` with random weights, sharp enough that choices are clear."""
    from transformers import MarianConfig, MarianMTModel

    shape = SIZES[size]
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=shape["d_model"],
        encoder_layers=shape["layers"],
        decoder_layers=shape["layers"],
        encoder_attention_heads=shape["heads"],
        decoder_attention_heads=shape["heads"],
        encoder_ffn_dim=shape["ffn"],
        decoder_ffn_dim=shape["ffn"],
        activation_function="relu",
        max_position_embeddings=256,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=START,
    )
    model = MarianMTModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed_positions" not in name:
                # strong layers, or a tied model repeats the token it has just read; weak cross-attention, or the
                # source alone decides
                strength = 1.0 if "shared" in name else 0.5 if "encoder_attn" in name else 3.0
                parameter.copy_(torch.randn_like(parameter) * strength * shape["d_model"] ** -0.5)
    return model.eval()


def ctranslate2_translator(model: EncoderDecoder, folder: Path) -> Callable[[int], Any]:
    """Our weights in CTranslate2's form; gives a translator for a number of threads."""
    import ctranslate2

    spec = specification(model, WORDS, positions=256)
    spec.validate()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    made: dict[int, Any] = {}

    def translator(threads: int) -> Any:
        if threads not in made:
            made[threads] = ctranslate2.Translator(
                str(folder), device="cpu", compute_type="float32", intra_threads=threads, inter_threads=1
            )
        return made[threads]

    return translator


class Sides:
    """Three ways to write the same thing; each gives the tokens of every sentence's best output."""

    def __init__(self, size: str, batch: int, beam: int, folder: Path) -> None:
        self.theirs = their_model(size)
        ours = read("marian", self.theirs.config.to_dict(), self.theirs.state_dict()).eval()
        assert isinstance(ours, EncoderDecoder)
        self.ours = ours
        self.fast = FastDecoding(self.ours)
        self.translator = ctranslate2_translator(self.ours, folder)
        self.threads = 1
        self.batch, self.beam = batch, beam
        torch.manual_seed(1)
        self.source = torch.randint(4, VOCABULARY, (batch, SOURCE))
        self.words = [[WORDS[token] for token in row] for row in self.source.tolist()]

    def clearhead(self) -> list[list[int]]:
        constraints = Constraints(min_length=NEW)
        prompts, limits = [[START]] * self.batch, [NEW] * self.batch
        with torch.inference_mode():
            steps = self.fast.steps(self.source)
            if self.beam == 1:
                return [h.tokens for h in greedy(steps, prompts, limits, END, constraints, with_log_probs=False)]
            how = BeamSearch(self.beam, 1.0, "power", refill=True, constraints=constraints)
            return [pool[0].tokens for pool in beam_search(steps, prompts, limits, END, how)]

    def transformers(self) -> list[list[int]]:
        found = self.theirs.generate(
            self.source,
            attention_mask=torch.ones_like(self.source),
            num_beams=self.beam,
            do_sample=False,
            min_new_tokens=NEW,
            max_new_tokens=NEW,
            early_stopping="never" if self.beam > 1 else None,
        )
        return [row[1:] for row in found.tolist()]

    def ctranslate2(self) -> list[list[int]]:
        found = self.translator(self.threads).translate_batch(
            self.words,
            beam_size=self.beam,
            min_decoding_length=NEW,
            max_decoding_length=NEW,
            max_batch_size=0,
        )
        return [[NUMBERS[word] for word in one.hypotheses[0]] for one in found]

    def set_threads(self, count: int) -> None:
        self.threads = count

    def check(self, name: str, found: list[list[int]], wanted: list[list[int]]) -> int:
        """Outputs must be equal; where they are not, both must be as good to within the margin."""
        different = 0
        for row, (theirs, ours) in enumerate(zip(found, wanted, strict=True)):
            assert len(theirs) == NEW, f"{name} wrote {len(theirs)} tokens instead of {NEW}"
            if theirs != ours:
                different += 1
                totals = [self.total(row, tokens) for tokens in (theirs, ours)]
                first = next(i for i, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b)
                close = abs(totals[0] - totals[1]) < 1e-3 if self.beam > 1 else self.margin(row, ours, first) < MARGIN
                assert close, f"{name} differs in row {row} at token {first}: {totals}"
        return different

    @torch.inference_mode()
    def total(self, row: int, tokens: list[int]) -> float:
        logits = self.ours(self.source[row : row + 1], torch.tensor([[START, *tokens[:-1]]]))[0]
        return float(logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum())

    @torch.inference_mode()
    def margin(self, row: int, tokens: list[int], at: int) -> float:
        logits = self.ours(self.source[row : row + 1], torch.tensor([[START, *tokens[:at]]]))[0, -1]
        best = logits.topk(2).values
        return float(best[0] - best[1])


def compare(size: str, batch: int, beam: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(size, batch, beam, Path(folder) / "model")
        wanted = sides.clearhead()
        ties = [sides.check(name, getattr(sides, name)(), wanted) for name in ("transformers", "ctranslate2")]
        ours = Contestant("clearhead", sides.clearhead, torch_threads)
        peers = [
            Contestant("CTranslate2 float32", sides.ctranslate2, sides.set_threads),
            Contestant("transformers.generate", sides.transformers, torch_threads),
        ]
        compete([ours, *peers], rounds)
        how = "greedy" if beam == 1 else f"beam {beam}"
        title = f"{size}, batch {batch}, {how}: {SOURCE} source tokens, {NEW} new, vocabulary {VOCABULARY:,}"
        report(title, ours, peers, "tokens/s", batch * NEW)
        print(f"  outputs equal; ties decided otherwise by the peers: {ties} of {batch}")


def compare_processor_time(size: str, batch: int, beam: int, rounds: int) -> None:
    """The same with one thread and without the time spent waiting for a processor; the least of the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(size, batch, beam, Path(folder) / "model")
        wanted = sides.clearhead()
        torch.set_num_threads(1)
        names = ("clearhead", "ctranslate2", "transformers")
        for name in names[1:]:
            sides.check(name, getattr(sides, name)(), wanted)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                start = time.process_time()
                getattr(sides, name)()
                seconds[name].append(time.process_time() - start)
        least = {name: min(found) for name, found in seconds.items()}
        line = "   ".join(f"{name} {1e3 * found:,.1f} ms" for name, found in least.items())
        ratios = ", ".join(f"{least[name] / least['clearhead']:.2f}x {name}" for name in names[1:])
        print(f"{size}, batch {batch}, beam {beam}, processor time: {line}   ours is {ratios}", flush=True)


def positions(processor_time: bool) -> None:
    """Time per token around position 50 and around 2,000, of a language model of 30 million parameters."""
    config = configure("llama", vocab_size=16_000, d_model=512, heads=8, kv_heads=8, d_ff=1376, decoder_layers=7)
    torch.manual_seed(0)
    model = DecoderOnly(config).eval()
    fast, count = FastDecoding(model), 20
    prompt = torch.randint(3, 16_000, (2_000,)).tolist()

    def timer(length: int, cached: bool) -> Callable[[], None]:
        steps: Any = fast.steps() if cached else ModelSteps(model, cached=False)
        with torch.inference_mode():
            token = steps.start([prompt[:length]]).argmax(-1)

        def write() -> None:
            nonlocal token
            with torch.inference_mode():
                for _ in range(count if cached else 1):
                    token = steps.step(token).argmax(-1)

        return write

    near = Contestant("with the cache, position 50", timer(50, True), torch_threads)
    far = Contestant("with the cache, position 2,000", timer(2_000, True), torch_threads)
    slow = Contestant("reading everything again, position 2,000", timer(2_000, False), torch_threads)
    print(f"\nTime per token, {count_parameters(config) / 1e6:.1f} million parameters")
    if processor_time:
        torch.set_num_threads(1)
        for one in (near, far, slow) * 3:
            start = time.process_time()
            one.work()
            one.seconds.append(time.process_time() - start)
    else:
        compete([near, far], rounds=7)
        compete([slow], rounds=3)
    for one, tokens in ((near, count), (far, count), (slow, 1)):
        print(f"  {one.name:<44}{one.median / tokens * 1e3:10.2f} ms   {one.threads} threads")
    print(f"  position 2,000 takes {far.median / near.median:.2f}x the time of position 50")


def main() -> None:
    wanted = sys.argv[1:] or ["base", "tiny", "positions"]
    print(machine())
    for size in ("base", "tiny"):
        if size in wanted:
            for batch, beam in ((1, 1), (32, 1), (32, 4)):
                measure = compare_processor_time if "cpu" in wanted else compare
                measure(size, batch, beam, rounds=3 if size == "base" and beam > 1 else 7)
    if "positions" in wanted:
        positions("cpu" in wanted)


if __name__ == "__main__":
    main()
