"""Decoding with the cache gives the outputs of the full pass, however the tokens arrive.

One by one, a prompt and then one by one, in chunks of three, two requests in turns, a second request after the
first, rows reordered as a beam search does. Which of these fail, and where, tells the causes apart.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap, outputs
from clearhead.doctor.watch import Watch

Inputs = tuple[Tensor, ...]


class Decoding:
    """One request: feeds pieces of the input and keeps the cache between them."""

    def __init__(self, subject: Subject, model: nn.Module, inputs: Inputs) -> None:
        self.spec: Any = subject.spec
        self.subject, self.model, self.inputs, self.cache = subject, model, inputs, None
        self.narrow = False  # were 16 bits used?
        self.flags: list[str] = []  # lines that use is_causal with more keys than queries

    def feed(self, tokens: Tensor) -> Tensor:
        given = (self.inputs[0], tokens) if isinstance(self.spec, EncoderDecoder) else (tokens,)
        with torch.no_grad(), Watch() as watch:
            result = self.spec.cached(self.model, *given, self.cache)
        calls = [call for call in watch.seen.fused if call.causal and call.query.size(-2) < call.key.size(-2)]
        self.narrow = self.narrow or bool(watch.seen.dtypes & {torch.float16, torch.bfloat16})
        self.flags = list(dict.fromkeys([*self.flags, *(call.where for call in calls)]))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise NotArmed(f"cached() returned {type(result).__name__}, wanted the pair (logits, cache)")
        out, self.cache = outputs(result[0]), result[1]
        # some models give logits for the last token only, or for all tokens read so far
        return out[:, -tokens.size(1) :]

    def tolerance(self) -> float:
        """A cache kept in 16 bits rounds what it keeps."""
        view = self.subject.views[0]
        return max(self.subject.tolerance(view), 0.1 * self.subject.spread(view) if self.narrow else 0.0)

    def reorder(self, rows: Tensor) -> None:
        self.cache = self.spec.reorder(self.cache, rows)
        self.inputs = tuple(x[rows] for x in self.inputs)


def in_pieces(decoding: Decoding, tokens: Tensor, pieces: list[int]) -> Tensor:
    return torch.cat([decoding.feed(piece) for piece in tokens.split(pieces, dim=1)], dim=1)


def schedules(length: int) -> dict[str, list[int]]:
    chunks = [3] * (length // 3) + ([length % 3] if length % 3 else [])
    return {
        "one by one": [1] * length,
        "at once": [length],
        "a prompt, then one by one": [length - 4, 1, 1, 1, 1],
        "in chunks of three": chunks,
    }


def compare(full: Tensor, stepwise: Tensor, pieces: list[int]) -> tuple[float, int]:
    """The largest gap, and the first position where one appears; outputs that a model leaves out are not compared."""
    if stepwise.shape != full.shape:
        # only the last token of each piece was answered
        ends = torch.tensor(pieces).cumsum(0) - 1
        full = full[:, ends]
        if stepwise.shape != full.shape:
            raise ValueError(f"cached() returned logits of shape {tuple(stepwise.shape)}, wanted {tuple(full.shape)}")
    gaps = [gap(full[:, i], stepwise[:, i]) for i in range(full.size(1))]
    return max(gaps), next((i for i, size in enumerate(gaps) if size == max(gaps)), 0)


def run(subject: Subject) -> list[Finding]:
    spec: Any = subject.spec
    if getattr(spec, "cached", None) is None:
        raise NotArmed("no cached() described")
    subject.require_exact()
    model = subject.fresh()
    length = max(11, (spec.window or 0) + 5)
    if length > 200:
        raise NotArmed("the window is too long to look beyond; describe a model built with a small one")
    inputs = subject.inputs(3, length, seed=6)
    full = subject.whole(model, inputs)
    failed: dict[str, tuple[float, int]] = {}
    errors: dict[str, str] = {}
    flags: list[str] = []
    for name, work in attempts(subject, model, inputs, full).items():
        try:
            size, place, decoding = work()
        except NotArmed:
            raise
        except Exception as error:
            # a cache that cannot take the very first request is described wrongly
            if name == "one by one":
                raise NotArmed(f"cached() raised {type(error).__name__}: {error}") from error
            failed[name] = (float("inf"), 0)
            errors[name] = f"{type(error).__name__}: {error}"
            continue
        flags += [line for line in decoding.flags if line not in flags]
        if size > decoding.tolerance():
            failed[name] = (size, place)
    if set(failed) == set(errors) == {"in chunks of three"}:
        return []  # a cache that takes one token at a time says so by raising
    return [report(subject, failed, errors, flags)] if failed else []


Outcome = tuple[float, int, Decoding]


def attempts(subject: Subject, model: nn.Module, inputs: Inputs, full: Tensor) -> dict[str, Callable[[], Outcome]]:
    """Every way to feed a cache, the plainest first."""

    def piecewise(pieces: list[int]) -> Outcome:
        decoding = Decoding(subject, model, inputs)
        size, place = compare(full, in_pieces(decoding, inputs[-1], pieces), pieces)
        return size, place, decoding

    length = inputs[-1].size(1)
    ways: dict[str, Callable[[], Outcome]] = {
        name: partial(piecewise, pieces) for name, pieces in schedules(length).items()
    }
    ways["two requests in turns"] = lambda: in_turns(subject, model, length)
    ways["a second request"] = lambda: second_request(subject, model, length)
    if subject.spec.reorder is not None:  # type: ignore[attr-defined]
        ways["rows reordered"] = lambda: reordered(subject, model, inputs)
    return ways


def in_turns(subject: Subject, model: nn.Module, length: int) -> Outcome:
    """Two requests share the model, not their caches."""
    requests = [subject.inputs(2, length, seed=seed) for seed in (10, 11)]
    caches = [Decoding(subject, model, inputs) for inputs in requests]
    parts: list[list[Tensor]] = [[], []]
    for t in range(length):
        for number, inputs in enumerate(requests):
            parts[number].append(caches[number].feed(inputs[-1][:, t : t + 1]))
    full = [subject.whole(model, inputs) for inputs in requests]
    size, place = max(compare(full[n], torch.cat(parts[n], dim=1), [1] * length) for n in range(2))
    return size, place, caches[0]


def second_request(subject: Subject, model: nn.Module, length: int) -> Outcome:
    """A request after another one finds nothing of it."""
    first, second = subject.inputs(2, length, seed=12), subject.inputs(2, length, seed=13)
    in_pieces(Decoding(subject, model, first), first[-1], [length - 1, 1])
    decoding = Decoding(subject, model, second)
    stepwise = in_pieces(decoding, second[-1], [length - 1, 1])
    size, place = compare(subject.whole(model, second), stepwise, [length - 1, 1])
    return size, place, decoding


def reordered(subject: Subject, model: nn.Module, inputs: Inputs) -> Outcome:
    """After half the tokens the rows are dealt anew, as when a beam takes over another's place."""
    rows, half, length = torch.tensor([2, 0, 0]), inputs[-1].size(1) // 2, inputs[-1].size(1)
    decoding = Decoding(subject, model, inputs)
    decoding.feed(inputs[-1][:, :half])
    decoding.reorder(rows)
    dealt = tuple(x[rows] for x in inputs)
    tail = torch.cat([decoding.feed(dealt[-1][:, t : t + 1]) for t in range(half, length)], dim=1)
    size, place = compare(subject.whole(model, dealt)[:, half:], tail, [1] * (length - half))
    return size, place, decoding


def report(subject: Subject, failed: dict[str, tuple[float, int]], errors: dict[str, str], flags: list[str]) -> Finding:
    name, (size, place) = next(iter(failed.items()))
    if name in errors:
        message = f"fed {name}, cached() raised {errors[name]}, though other ways to feed it work"
    else:
        message = (
            f"fed {name}, the cached outputs differ from the full pass by {show(size)}, most at position {place}; "
            f"noise {show(subject.noise(subject.views[0]))}"
        )
    others = [other for other in failed if other != name]
    if others:
        message += f"; also: {', '.join(others)}"
    evidence = {
        "failed": list(failed),
        "place": place,
        "size": size / subject.spread(subject.views[0]),
        "window": subject.spec.window,
        "causal_flag": bool(flags),
    }
    return Finding("cache.differs", ERROR, message, evidence, tuple(flags))
