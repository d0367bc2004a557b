"""Training throughput in target tokens per second: the whole loop, with data and optimizer, on Multi30k batches.

`make bench-throughput` (`python -m bench.throughput tiny base --rounds 5`). Every side gets the same batches from the
same dataset, makes its tensors of them, runs forward and backward with the label-smoothed loss, clips, and updates with
fused Adam. The peers are `nn.Transformer` (with the embeddings, sinusoids and tied head it lacks) and `transformers`'
Marian, in float32; ours has the dropout of whichever it is compared with. Ours in bfloat16 is shown beside them, where
the processor has it. The share of the machine's peak is the FLOPs of the matrix products of ours, counted by PyTorch,
over the time, against the best float32 matrix product of 2,048 squared measured in the same run.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench import model as peers
from bench.measure import Contestant, compete, report, torch_threads
from clearhead.data.batch import Batch, Dataset
from clearhead.data.splits import build as build_data
from clearhead.machine import machine
from clearhead.model import build, configure
from clearhead.training.config import TrainingSettings, load_recipe
from clearhead.training.loop import Loop

SMOOTHING, RATE = 0.1, 1e-4
MAX_TOKENS = {"tiny": 4096, "base": 1024}
BATCHES = {"tiny": 3, "base": 1}  # in one measurement
EVERYWHERE = {"residual": 0.1, "embedding": 0.1, "attention": 0.1, "hidden": 0.1}


def our_loop(name: str, data: Dataset, dropout: dict[str, float], placement: str, precision: str) -> Loop:
    size = peers.SIZES[name]
    config = configure(
        vocab_size=data.tokenizer.size, d_model=size["d_model"], heads=size["heads"], d_ff=size["d_ff"],
        encoder_layers=size["layers"], decoder_layers=size["layers"], dropout=dropout, norm={"placement": placement},
    )  # fmt: skip
    settings = TrainingSettings(
        max_tokens=MAX_TOKENS[name], label_smoothing=SMOOTHING, schedule="constant", peak=RATE, warmup=0,
        precision=precision,  # type: ignore[arg-type]
    )  # fmt: skip
    return Loop(build(config), data, settings)


Logits = Callable[[Batch], torch.Tensor]


def peer_update(model: nn.Module, data: Dataset, logits: Logits) -> Callable[[list[int]], None]:
    """The usual loop: collate, forward, cross-entropy, backward, clip, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)
    model.train()

    def update(indices: list[int]) -> None:
        batch = data.collate(indices, 1, 0)
        loss = F.cross_entropy(
            logits(batch).flatten(0, 1), batch.labels.flatten(), ignore_index=-100, label_smoothing=SMOOTHING
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return update


def real_of(batch: Batch) -> torch.Tensor:
    found = batch.inputs.get("source_real")
    return torch.ones_like(batch.inputs["source"], dtype=torch.bool) if found is None else found


def contestants(name: str, data: Dataset, plan: list[list[int]]) -> list[Contestant]:
    peers.VOCABULARY = data.tokenizer.size
    size = peers.SIZES[name]
    torch_model, marian = peers.TorchSeq2Seq(size, 0.1), peers.marian(size, 0.1)
    torch_update = peer_update(
        torch_model, data, lambda b: torch_model(b.inputs["source"], real_of(b), b.inputs["target"])
    )
    marian_update = peer_update(
        marian,
        data,
        lambda b: (
            marian(
                input_ids=b.inputs["source"], attention_mask=real_of(b).long(), decoder_input_ids=b.inputs["target"]
            ).logits
        ),
    )

    def ours(dropout: dict[str, float], placement: str, precision: str) -> Callable[[], None]:
        loop = our_loop(name, data, dropout, placement, precision)

        def work() -> None:
            for number in range(len(plan)):
                loop._plan, loop._planned, loop.progress.batch = plan, (loop.progress.epoch, 0), number
                loop.one_update()

        return work

    usual = {"residual": 0.1, "embedding": 0.1}
    return [
        Contestant("clearhead, as nn.Transformer", ours(EVERYWHERE, "pre", "float32"), torch_threads),
        Contestant("nn.Transformer", lambda: [torch_update(batch) for batch in plan], torch_threads),
        Contestant("clearhead, as Marian", ours(usual, "post", "float32"), torch_threads),
        Contestant("transformers Marian", lambda: [marian_update(batch) for batch in plan], torch_threads),
        Contestant("clearhead, as Marian, auto precision", ours(usual, "post", "auto"), torch_threads),
    ]


def matmul_peak(threads: int) -> float:
    """FLOPs per second of the best of several large float32 products."""
    torch.set_num_threads(threads)
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - began)
    return 2 * 2048**3 / min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", default=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    print(machine())
    recipe = load_recipe("multi30k")
    data = build_data(recipe.data, None, recipe.tokenizer).train
    for name in options.sizes:
        whole = data.plan(1, 0, MAX_TOKENS[name])
        plan = whole[: BATCHES[name]]
        tokens = sum(data.collate(batch).count for batch in plan)
        sides = contestants(name, data, plan)
        compete(sides, options.rounds, options.threads)
        for ours, peer in ((sides[0], sides[1]), (sides[2], sides[3])):
            report(f"{name}: training on Multi30k, {tokens} target tokens a round", ours, [peer], "tokens/s", tokens)
        report(f"{name}: ours in bfloat16, for scale", sides[4], [sides[3]], "tokens/s", tokens)
        with FlopCounterMode(display=False) as counter:
            sides[2].work()
        peak = max(matmul_peak(sides[2].threads) for _ in range(3))
        share = counter.get_total_flops() / statistics.median(sides[2].seconds) / peak
        print(f"  ours does {share:.0%} of the matmul peak ({peak / 1e9:.0f} GFLOP/s on {sides[2].threads} threads)")


if __name__ == "__main__":
    main()
