"""Changes that look like bugs and are none: the doctor must stay silent on all of them."""

from clearhead.doctor.mutants import Mutant
from clearhead.doctor.mutants.decoder import MASK, SCORES, WEIGHTS


def row(
    id: str, title: str, host: str, variant: str, healthy: str, other: str, also: tuple[tuple[str, str], ...] = ()
) -> Mutant:
    return Mutant(id, title, host, variant, healthy, other, (), also)


BENIGN = [
    row(
        "b1",
        "rotation of neighbouring features, consistently",
        "decoder",
        "rotary",
        "return torch.cat([angles, angles], dim=-1)",
        "return angles.repeat_interleave(2, dim=-1)",
        also=(
            ("first, second = x.chunk(2, dim=-1)", "first, second = x[..., 0::2], x[..., 1::2]"),
            (
                "turned = torch.cat([-second, first], dim=-1)",
                "turned = torch.stack([-second, first], dim=-1).flatten(-2)",
            ),
        ),
    ),
    row(
        "b2",
        "masked after the softmax, then renormalised",
        "decoder",
        "rotary",
        WEIGHTS,
        "weights = scores.softmax(dim=-1) * mask\n"
        "        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)",
        also=((MASK, "scores = scores.clamp(min=-1e4)"),),
    ),
    row(
        "b3",
        "log_softmax of a log_softmax",
        "loop",
        "decoder",
        "log_probabilities = F.log_softmax(flat, dim=-1)",
        "log_probabilities = F.log_softmax(F.log_softmax(flat, dim=-1), dim=-1)",
    ),
    row(
        "b4",
        "a cache kept in 16 bits",
        "decoder",
        "rotary",
        "self.layers[layer] = (keys[:, :, -keep:], values[:, :, -keep:])",
        "keys, values = keys.bfloat16().to(keys.dtype), values.bfloat16().to(values.dtype)\n"
        "        self.layers[layer] = (keys[:, :, -keep:], values[:, :, -keep:])",
    ),
    row(
        "b5",
        "keys before queries, softmax over the other axis, consistently",
        "decoder",
        "rotary",
        SCORES,
        "scores = k @ q.transpose(-2, -1) / math.sqrt(self.head_width)\n        mask = mask.transpose(-2, -1)",
        also=(
            (WEIGHTS, "weights = scores.softmax(dim=-2) * mask.any(dim=-2, keepdim=True)"),
            ("return weights @ v", "return weights.transpose(-2, -1) @ v"),
        ),
    ),
    row(
        "b6",
        "scale moved from the scores to the queries",
        "decoder",
        "rotary",
        SCORES,
        "scores = (q / self.head_width**0.5) @ k.transpose(-2, -1)",
    ),
    row(
        "b7",
        "minus infinity and rows without keys set to zero",
        "decoder",
        "rotary",
        WEIGHTS,
        "weights = scores.softmax(dim=-1)",
        also=(
            (
                MASK,
                "scores = scores.masked_fill(~mask, -math.inf)\n"
                "        scores = scores.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)",
            ),
            ("return weights @ v", "return (weights * mask.any(dim=-1, keepdim=True)) @ v"),
        ),
    ),
]
