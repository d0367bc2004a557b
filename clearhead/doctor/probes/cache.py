"""Decoding with the cache gives the outputs of the full pass, however the tokens arrive.

One by one, a prompt and then one by one, in chunks of three, two requests in turns, a second request after the
first, rows reordered as a beam search does. Which of these fail, and where, tells the causes apart.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.attended import attended, first_difference
from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, NOTE, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject, gap, outputs
from clearhead.doctor.watch import Seen, Watch
from clearhead.errors import InputError

Inputs = tuple[Tensor, ...]


class Decoding:
    """One request: feeds pieces of the input and keeps the cache between them."""

    def __init__(self, subject: Subject, model: nn.Module, inputs: Inputs) -> None:
        self.spec: Any = subject.spec
        self.subject, self.model, self.inputs, self.cache = subject, model, inputs, None
        self.narrow = False  # were 16 bits used?
        self.kernel = False  # did a fused kernel run?
        self.seen = Seen()  # what was seen of the last piece
        self.pieces: list[int] = []  # how many tokens were fed each time
        self.flags: list[str] = []  # lines that use is_causal with more keys than queries

    def feed(self, tokens: Tensor) -> Tensor:
        given = (self.inputs[0], tokens) if isinstance(self.spec, EncoderDecoder) else (tokens,)
        self.pieces.append(tokens.size(1))
        with torch.no_grad(), Watch() as watch:
            result = self.subject.call("cached", self.spec.cached, self.model, *given, self.cache)
        self.kernel, self.seen = self.kernel or bool(watch.seen.fused), watch.seen
        calls = [call for call in watch.seen.fused if call.causal and call.query.size(-2) < call.key.size(-2)]
        self.narrow = self.narrow or bool(watch.seen.dtypes & {torch.float16, torch.bfloat16})
        self.flags = list(dict.fromkeys([*self.flags, *(call.where for call in calls)]))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise InputError(f"cached() returned {type(result).__name__}, wanted the pair (logits, cache)")
        out, self.cache = outputs(result[0]), result[1]
        # some models give logits for the last token only, or for all tokens read so far
        return out[:, -tokens.size(1) :]

    def tolerance(self) -> float:
        """A cache kept in 16 bits rounds what it keeps."""
        view = self.subject.views[0]
        return max(self.subject.tolerance(view), 0.1 * self.subject.spread(view) if self.narrow else 0.0)

    def reorder(self, rows: Tensor) -> None:
        self.cache = self.subject.call("reorder", lambda _, rows: self.spec.reorder(self.cache, rows), self.model, rows)
        self.inputs = tuple(x[rows] for x in self.inputs)


def in_pieces(decoding: Decoding, tokens: Tensor, pieces: list[int]) -> Tensor:
    return torch.cat([decoding.feed(piece) for piece in tokens.split(pieces, dim=1)], dim=1)


def singly(length: int, prefix: int) -> list[int]:
    """One by one, but for the prefix: its tokens see each other both ways, so they come together."""
    return [prefix] * (prefix > 0) + [1] * (length - prefix)


def schedules(length: int, prefix: int = 0) -> dict[str, list[int]]:
    rest = length - prefix
    chunks = [prefix] * (prefix > 0) + [3] * (rest // 3) + [rest % 3] * (rest % 3 > 0)
    return {
        "one by one": singly(length, prefix),
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
            raise InputError(f"cached() returned logits of shape {tuple(stepwise.shape)}, wanted {tuple(full.shape)}")
    gaps = [gap(full[:, i], stepwise[:, i]) for i in range(full.size(1))]
    return max(gaps), next((i for i, size in enumerate(gaps) if size == max(gaps)), 0)


class Outcome:
    """What came of one way to feed the cache."""

    def __init__(self) -> None:
        self.size, self.place, self.decodings = 0.0, 0, list[Decoding]()
        self.raised: Raised | None = None

    def start(self, subject: Subject, model: nn.Module, inputs: Inputs) -> Decoding:
        self.decodings.append(Decoding(subject, model, inputs))
        return self.decodings[-1]

    def compare(self, full: Tensor, stepwise: Tensor, pieces: list[int]) -> None:
        size, place = compare(full, stepwise, pieces)
        if size > self.size:
            self.size, self.place = size, place

    @property
    def failed(self) -> bool:
        return self.raised is not None or self.size > max(decoding.tolerance() for decoding in self.decodings)

    def excused(self, prompts: bool) -> bool:
        """A cache may refuse, or take tokens one at a time: all of them, or those after a prompt."""
        if self.raised is None:
            return False
        pieces = self.decodings[-1].pieces
        several = pieces[-1:] > [1] and (len(pieces) > 1 or not prompts)
        return several or self.raised.refused


def run(subject: Subject) -> list[Finding]:
    spec: Any = subject.spec
    if getattr(spec, "cached", None) is None:
        raise NotArmed("no cached() described")
    subject.require_exact()
    model = subject.fresh()
    length = max(11, (spec.window or 0) + 5, 2 * subject.prefix + 6)
    if length > 200:
        raise NotArmed("the window is too long to look beyond; describe a model built with a small one")
    inputs = subject.inputs(3, length, seed=6)
    full = subject.whole(model, inputs)
    outcomes: dict[str, Outcome] = {}
    for name, work in attempts(subject, model, inputs, full).items():
        outcomes[name] = outcome = Outcome()
        try:
            work(outcome)
        except Raised as error:
            outcome.raised = error
    return judge(subject, outcomes)


def judge(subject: Subject, outcomes: dict[str, Outcome]) -> list[Finding]:
    """What differs, what raised though something else worked, and what a cache need not take."""
    first = next(iter(outcomes.values()))
    if all(outcome.raised for outcome in outcomes.values()) and first.raised and len(first.decodings[0].pieces) == 1:
        raise first.raised  # nothing works at all: what was described is not a cache
    findings = []
    prompts = outcomes["at once"].raised is None
    one_at_a_time = {name: o for name, o in outcomes.items() if o.excused(prompts)}
    raised = {name: o for name, o in outcomes.items() if o.raised and name not in one_at_a_time}
    differing = {name: o for name, o in outcomes.items() if o.failed and not o.raised}
    if differing:
        findings.append(report(subject, differing, outcomes))
    for name, outcome in list(raised.items())[:1]:
        assert outcome.raised is not None
        fed = sum(outcome.decodings[-1].pieces[:-1])
        also = f"; also: {', '.join(other for other in raised if other != name)}" if len(raised) > 1 else ""
        message = f"fed {name}, {outcome.raised.told()}, after {fed} tokens had gone through{also}"
        evidence = {"failed": list(raised), "fed": fed, "error": outcome.raised.kind}
        findings.append(Finding("cache.raised", ERROR, message, evidence, (outcome.raised.where,)))
    if one_at_a_time and not raised:
        name, outcome = next(iter(one_at_a_time.items()))
        message = f"not asked: {', '.join(one_at_a_time)}; {outcome.raised.told() if outcome.raised else ''}"
        findings.append(Finding("cache.pieces", NOTE, message, {"failed": list(one_at_a_time)}))
    return findings


def attempts(subject: Subject, model: nn.Module, inputs: Inputs, full: Tensor) -> dict[str, Callable[[Outcome], None]]:
    """Every way to feed a cache, the plainest first."""

    def piecewise(pieces: list[int], outcome: Outcome) -> None:
        decoding = outcome.start(subject, model, inputs)
        outcome.compare(full, in_pieces(decoding, inputs[-1], pieces), pieces)

    length = inputs[-1].size(1)
    ways: dict[str, Callable[[Outcome], None]] = {
        name: partial(piecewise, pieces) for name, pieces in schedules(length, subject.prefix).items()
    }
    ways["two requests in turns"] = partial(in_turns, subject, model, length)
    ways["a second request"] = partial(second_request, subject, model, length)
    if subject.spec.reorder is not None:  # type: ignore[attr-defined]
        ways["rows reordered"] = partial(reordered, subject, model, inputs)
    return ways


def in_turns(subject: Subject, model: nn.Module, length: int, outcome: Outcome) -> None:
    """Two requests share the model, not their caches."""
    requests = [subject.inputs(2, length, seed=seed) for seed in (10, 11)]
    caches = [outcome.start(subject, model, inputs) for inputs in requests]
    parts: list[list[Tensor]] = [[], []]
    pieces = singly(length, subject.prefix)
    for piece in zip(*(inputs[-1].split(pieces, dim=1) for inputs in requests), strict=True):
        for number, tokens in enumerate(piece):
            parts[number].append(caches[number].feed(tokens))
    for number, inputs in enumerate(requests):
        outcome.compare(subject.whole(model, inputs), torch.cat(parts[number], dim=1), pieces)


def second_request(subject: Subject, model: nn.Module, length: int, outcome: Outcome) -> None:
    """A request after another one finds nothing of it."""
    first, second = subject.inputs(2, length, seed=12), subject.inputs(2, length, seed=13)
    in_pieces(outcome.start(subject, model, first), first[-1], [length - 1, 1])
    stepwise = in_pieces(outcome.start(subject, model, second), second[-1], [length - 1, 1])
    outcome.compare(subject.whole(model, second), stepwise, [length - 1, 1])


def reordered(subject: Subject, model: nn.Module, inputs: Inputs, outcome: Outcome) -> None:
    """After half the tokens the rows are dealt anew, as when a beam takes over another's place."""
    rows, half, length = torch.tensor([2, 0, 0]), inputs[-1].size(1) // 2, inputs[-1].size(1)
    decoding = outcome.start(subject, model, inputs)
    in_pieces(decoding, inputs[-1][:, :half], singly(half, subject.prefix))
    decoding.reorder(rows)
    dealt = tuple(x[rows] for x in inputs)
    tail = torch.cat([decoding.feed(dealt[-1][:, t : t + 1]) for t in range(half, length)], dim=1)
    outcome.compare(subject.whole(model, dealt)[:, half:], tail, [1] * (length - half))


def looked_at(subject: Subject, failed: str) -> dict[str, str | int | bool]:
    """What the attentions of a last piece work on, compared with the full pass; nothing where not seen."""
    length = max(9, 3 * ((subject.spec.window or 0) // 3 + 2)) + subject.prefix  # chunks of three come out even
    model, inputs = subject.fresh(), subject.inputs(3, length, seed=6)
    source = inputs[0].size(1) if isinstance(subject.spec, EncoderDecoder) else 0
    with Watch() as watch:
        subject.whole(model, inputs)
    decoding = Decoding(subject, model, inputs)
    ways = schedules(length, subject.prefix)
    pieces = ways[failed] if failed in ways and ways[failed][-1] < length else singly(length, subject.prefix)
    try:
        in_pieces(decoding, inputs[-1], pieces)
    except Exception:
        return {}
    fed = pieces[-1]
    try:
        return first_difference(attended(watch.seen, length, source), attended(decoding.seen, fed, source), length, fed)
    except RuntimeError:
        return {}  # a layout that cannot be read


def report(subject: Subject, differing: dict[str, Outcome], outcomes: dict[str, Outcome]) -> Finding:
    name, worst = next(iter(differing.items()))
    message = (
        f"fed {name}, the cached outputs differ from the full pass by {show(worst.size)}, most at position "
        f"{worst.place}; noise {show(subject.noise(subject.views[0]))}"
    )
    others = [other for other in differing if other != name]
    if others:
        message += f"; also: {', '.join(others)}"
    decodings = [decoding for outcome in outcomes.values() for decoding in outcome.decodings]
    flags = list(dict.fromkeys(line for decoding in decodings for line in decoding.flags))
    evidence = {
        "failed": [other for other, outcome in outcomes.items() if outcome.failed],
        "place": worst.place,
        "size": worst.size / subject.spread(subject.views[0]),
        "window": subject.spec.window,
        "looked": looked_at(subject, name),
        "causal_flag": bool(flags),
        "kernel": any(decoding.kernel for decoding in decodings),
    }
    return Finding("cache.differs", ERROR, message, evidence, tuple(flags))
