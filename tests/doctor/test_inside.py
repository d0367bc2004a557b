"""What is watched inside a pass is read in any layout, and what some architectures mean to do is not called a bug."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.attended import kept
from clearhead.doctor.fitted_loss import fitted
from tests.doctor.test_honest_arms import ids

WIDTH, HEADS = 24, 3


class Layer(nn.Module):
    """Pre-norm attention, its scores (query, key, row, head), and a feed-forward layer; the rest is told by `how`."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.norm1, self.norm2, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # (S, B, D)
        length, batch, _ = x.shape
        y = self.norm1(x)
        q, k, v = (t.view(length, batch, HEADS, -1) for t in self.qkv(y).chunk(3, dim=-1))
        k = q if self.how == "shared" else k
        scores = torch.einsum("ibhd,jbhd->ijbh", q, k) / math.sqrt(q.size(-1))
        index = torch.arange(length)
        distance = (index[:, None] - index[None, :])[..., None, None].to(x.dtype)
        sign = {"alibi": -1.0, "uphill": 1.0}.get(self.how, 0.0)
        scores = scores + sign * distance * torch.tensor([2.0**-4, 2.0**-8, 2.0**-2])
        hidden = distance < 0
        if self.how in ("shared", "blind"):  # a token sees itself only where there is nothing else
            hidden = hidden | ((distance == 0) & (index > 0)[:, None, None, None])
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=1)
        mixed = torch.einsum("ijbh,jbhd->ibhd", weights, v).flatten(2)
        if self.how == "gated":
            mixed = mixed * self.gate(y).sigmoid()
        attended = x + self.out(mixed)
        fed = self.down(self.up(self.norm2(attended)).relu())
        if self.how == "stale":
            return x + fed
        return self.last(attended + fed) if self.how == "closed" else attended + fed


class Model(nn.Module):
    def __init__(self, vocab: int, layers: int, how: str, positions: bool) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(vocab, WIDTH), nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(Layer(how) for _ in range(layers))
        self.positions, self.norm, self.head = positions, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens.t())
        if self.positions:
            x = x + self.place(torch.arange(tokens.size(1)))[:, None]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)).transpose(0, 1)


def found(how: str, probe: str, absolute: bool = True, **fields: Any) -> dict[str, str]:
    def build(vocab: int = 61, layers: int = 2) -> nn.Module:
        return Model(vocab, layers, how, absolute)

    spec = doctor.CausalLM(build=build, forward=lambda model, tokens: model(tokens), sizes={"width": WIDTH}, **fields)
    return ids(doctor.check(spec, only=[probe]))


def test_scores_are_read_where_rows_and_heads_come_last() -> None:
    assert found("alibi", "position", absolute=False, positions="alibi") == {}
    assert found("uphill", "position", absolute=False, positions="alibi") == {"position.slopes": "error"}


@pytest.mark.parametrize(
    ("how", "probe", "wanted"),
    [
        ("plain", "residual", {}),
        ("stale", "residual", {"residual.missing": "error"}),  # what attention found goes through the feed-forward only
        ("gated", "residual", {}),  # a gate over what attention mixed is no feed-forward layer
        ("closed", "residual", {"residual.normed": "warning"}),  # a norm may end a layer
        ("plain", "attention", {}),
        ("blind", "attention", {"attention.blind": "error"}),
        ("shared", "attention", {}),  # queries are keys: a token would look at itself only
    ],
)
def test_what_lies_between_sub_layers(how: str, probe: str, wanted: dict[str, str]) -> None:
    assert found(how, probe) == wanted


def test_a_cache_is_told_by_what_it_keeps() -> None:
    full = torch.randn(2, 5, 4, dtype=torch.float64)
    assert kept(full, full.clone()) == "same"
    assert kept(full, full[:, [1, 0, 2, 3, 4]]) == "order"
    assert kept(full, full[:, 1:]) == "fewer"
    assert kept(full, full + 0.1) == "other"


def test_a_loss_is_told_by_what_it_weighs() -> None:
    """Half of the weight on the label, a tenth on all tokens, and padding asked for as well."""
    torch.manual_seed(0)
    logits = [torch.randn(2, 6, 11, dtype=torch.float64) for _ in range(30)]
    tokens = [torch.randint(0, 11, (2, 6)) for _ in range(30)]
    for labels in tokens:
        labels[:, 1:] = labels[:, 1:].clamp(min=3)
        labels[1, 4:] = 0  # padding
    values = []
    for out, labels in zip(logits, tokens, strict=True):
        logp, wanted = out[:, :-1].log_softmax(dim=-1), labels[:, 1:]
        right = -logp.gather(2, wanted[..., None]).squeeze(2)
        values.append(float((0.5 * right - 0.1 * logp.mean(dim=-1)).sum() / (wanted != 0).sum()))
    (fits,) = [fit for fit in fitted(values, logits, tokens, 1, 0, (), 1e-9) if fit.pairing == "as declared"]
    told = {part: round(weight, 6) for part, weight in fits.weights.items() if abs(weight) > 1e-6}
    assert told == {"label": 0.5, "all tokens": 0.1, "label of padding": 0.5, "all tokens at padding": 0.1}
