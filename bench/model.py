"""`make bench`: forward plus backward of the model, and the memory of attention, against those people use today.

Equal work: the same sizes, vocabulary, batch and dropout at the same places, logits for every target position and the
label-smoothed loss of them, one backward pass. The peers get their usual best: `batch_first`, no weights returned,
SDPA attention. Every side runs at its best number of threads.
"""

import argparse
import timeit
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import clearhead
from bench.measure import Contestant, compete, peak_memory, report, torch_threads
from clearhead.machine import forget_peak, machine, resident
from clearhead.model import EncoderDecoder, attention, fused_attention, tap
from clearhead.model.positions import sinusoids
from clearhead.training.loss import summed_loss

VOCABULARY = 10_000
SIZES = {
    "tiny": {"d_model": 128, "heads": 4, "d_ff": 256, "layers": 4, "batch": 64, "length": 24},
    "base": {"d_model": 512, "heads": 8, "d_ff": 2048, "layers": 6, "batch": 32, "length": 24},
}


class TorchSeq2Seq(nn.Module):
    """nn.Transformer with what it lacks: embeddings, sinusoids, a tied head."""

    def __init__(self, size: dict[str, int], dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size["d_model"])
        nn.init.normal_(self.embedding.weight, std=size["d_model"] ** -0.5)
        self.table: Tensor
        self.register_buffer("table", sinusoids(512, size["d_model"]).float())
        self.dropout = nn.Dropout(dropout)
        self.body = nn.Transformer(
            size["d_model"], size["heads"], size["layers"], size["layers"], size["d_ff"], dropout,
            batch_first=True, norm_first=True,
        )  # fmt: skip

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.embedding.embedding_dim**0.5 + self.table[: tokens.size(1)])

    def forward(self, source: Tensor, source_real: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        hidden = self.body(
            self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=~source_real, memory_key_padding_mask=~source_real,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


def marian(size: dict[str, int], dropout: float) -> nn.Module:
    """`transformers`' Marian, the closest it has to the paper's model."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=size["d_model"], encoder_layers=size["layers"], decoder_layers=size["layers"],
        encoder_attention_heads=size["heads"], decoder_attention_heads=size["heads"],
        encoder_ffn_dim=size["d_ff"], decoder_ffn_dim=size["d_ff"], activation_function="relu", dropout=dropout,
        attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True, max_position_embeddings=512,
        pad_token_id=0, eos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    return MarianMTModel(config)


def ours(size: dict[str, int], dropout: dict[str, float], placement: str) -> EncoderDecoder:
    return EncoderDecoder(
        clearhead.configure(
            vocab_size=VOCABULARY,
            d_model=size["d_model"],
            heads=size["heads"],
            d_ff=size["d_ff"],
            encoder_layers=size["layers"],
            decoder_layers=size["layers"],
            dropout=dropout,
            norm={"placement": placement},
        )
    )


def step_time(name: str, rounds: int) -> None:
    """One training step's forward and backward, against both peers, dropout where each of them has it."""
    size = SIZES[name]
    torch.manual_seed(0)
    shape = (size["batch"], size["length"])
    source, target, labels = (torch.randint(1, VOCABULARY, shape) for _ in range(3))
    lengths = torch.randint(size["length"] * 3 // 4, size["length"] + 1, (size["batch"],))
    real = torch.arange(size["length"])[None] < lengths[:, None]

    def our_step(model: EncoderDecoder) -> None:
        model.zero_grad()
        hidden = model.hidden(source, target, real)
        (summed_loss(model, hidden, labels, 0.1) / labels.numel()).backward()

    def peer_step(model: nn.Module, logits: Tensor) -> None:
        model.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1).backward()

    torch_model = TorchSeq2Seq(size, 0.1)
    hf_model = marian(size, 0.1)
    everywhere = {"residual": 0.1, "embedding": 0.1, "attention": 0.1, "hidden": 0.1}
    like_torch = ours(size, everywhere, "pre")
    like_marian = ours(size, {"residual": 0.1, "embedding": 0.1}, "post")
    for model in (torch_model, hf_model, like_torch, like_marian):
        model.train()
    tokens = labels.numel()
    mask = real.long()

    def torch_step() -> None:
        peer_step(torch_model, torch_model(source, real, target))

    def marian_step() -> None:
        peer_step(hf_model, hf_model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits)

    for title, our_model, peer_name, peer in (
        ("nn.Transformer", like_torch, "torch.nn.Transformer", torch_step),
        ("Marian", like_marian, "transformers Marian", marian_step),
    ):
        entries = [
            Contestant(f"clearhead, dropout as {title}", partial(our_step, our_model), torch_threads),
            Contestant(peer_name, peer, torch_threads),
        ]
        compete(entries, rounds)
        heading = f"{name}: forward + backward, {shape[0]} x {shape[1]} tokens"
        report(heading, entries[0], entries[1:], "tokens/s", tokens)


def attention_memory(kind: str, length: int) -> None:
    """Print the peak resident set of one attention, forward and backward, above what was there before."""
    torch.set_num_threads(1)
    function = attention if kind == "plain" else fused_attention
    warm = torch.randn(1, 8, 128, 64, requires_grad=True)
    function(warm, warm, warm, causal=True)[0].sum().backward()
    q, k, v = (torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3))
    forget_peak()
    before = resident()
    function(q, k, v, causal=True)[0].sum().backward()
    print(resident(peak=True) - before)


def tap_share(calls: int = 200_000) -> float:
    """What the names cost when nothing records: taps times the cost of one, as a share of the smallest pass."""
    torch.set_num_threads(1)
    model = clearhead.build(clearhead.configure("tiny", vocab_size=1000)).eval()
    token = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        with clearhead.trace(model) as taken:
            model(token, token)
        each = timeit.timeit(lambda: tap("scores", token, "B H S T"), number=calls) / calls
        whole = min(timeit.repeat(lambda: model(token, token), number=20, repeat=5)) / 20
    return len(taken) * each / whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all")
    parser.add_argument("--memory", choices=["plain", "fused"], help="measure this process and print bytes")
    parser.add_argument("--length", type=int, default=4096)
    options = parser.parse_args()
    if options.memory:
        attention_memory(options.memory, options.length)
        return
    print(machine())
    for name in SIZES if options.size == "all" else [options.size]:
        step_time(name, options.rounds)
    plain, fused = (
        peak_memory("bench.model", "--memory", kind, "--length", str(options.length)) for kind in ("plain", "fused")
    )
    print(f"\nattention, 8 heads x {options.length} x 64, causal, forward + backward: peak memory above baseline")
    print(f"  plain {plain / 1e6:,.0f} MB   fused {fused / 1e6:,.0f} MB   fused is {fused / plain:.3f} of plain")
    print(f"\ntaps, when nothing records: {tap_share():.2%} of a one-token pass of `tiny`")


if __name__ == "__main__":
    main()
