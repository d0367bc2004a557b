"""Our own models at the doctor's: it examines them from outside, as it does anyone's, and finds nothing."""

from itertools import product
from typing import Any

import pytest

from clearhead import doctor
from clearhead.interop.doctor import describe
from clearhead.model import configure
from tests.model.cases import POSITIONS

KINDS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"kind": "encoder-decoder"},
    "decoder": {"kind": "decoder"},
    "encoder": {"kind": "encoder", "head": {"kind": "masked"}},
}
CHOICES: dict[str, dict[str, Any]] = {
    "grouped heads": {"kv_heads": 2, "heads": 4},
    "window": {"window": 4},
    "window, grouped heads, ALiBi": {"window": 4, "kv_heads": 2, "heads": 4, "positions": {"kind": "alibi"}},
    "SwiGLU and RMS norm": {"activation": "swiglu", "norm": {"kind": "rms"}},
    "GELU, no bias": {"activation": "gelu", "bias": False},
    "untied head with a bias": {"head": {"tied": False, "bias": True}},
    "GPT-2's first weights": {"init": "gpt2"},
    "final norm after post-norm": {"norm": {"placement": "post", "final": True}},
    "RoPE in halves": {"positions": {"kind": "rope", "layout": "split"}},
    "norm of the embedding": {"embedding": {"norm": True}},
}


def examine(quick: bool, **choices: Any) -> None:
    learned = choices.get("positions", {}).get("kind") == "learned"
    if learned:
        choices["positions"] = {"kind": "learned", "max_length": 640}
    report = doctor.check(describe(configure("tiny", vocab_size=61, **choices)), quick=quick)
    assert report.errors == ()
    assert len(report.passed) >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_ours_is_healthy(kind: str) -> None:
    examine(True, **KINDS[kind])


@pytest.mark.long
@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize(("kind", "positions"), list(product(KINDS, POSITIONS)))
def test_ours_are_healthy(kind: str, positions: str, placement: str, kernels: str) -> None:
    choices = {"positions": {"kind": positions}, "norm": {"placement": placement}, "kernels": kernels}
    examine(False, **KINDS[kind], **choices)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "choice"), list(product(KINDS, CHOICES)))
def test_ours_are_healthy_in_other_choices(kind: str, choice: str) -> None:
    made = KINDS[kind] | CHOICES[choice]
    if kind == "encoder" and "head" in CHOICES[choice]:
        made["head"] = {"kind": "masked"} | CHOICES[choice]["head"]
    examine(False, **made)


@pytest.mark.long
@pytest.mark.parametrize("head", ["tokens", "pooled", "none"])
def test_encoders_with_other_heads_are_healthy(head: str) -> None:
    examine(False, kind="encoder", head={"kind": head, "classes": 5 if head == "tokens" else 0})
