"""What the page may ask, as frozen dataclasses: every key and every type is checked before anything is computed."""

import math
from dataclasses import dataclass, field
from typing import Literal

from clearhead.errors import InputError, require
from clearhead.explore.readings import MOST_ANSWER

MOST_LETTERS = 8_000  # of a text; 512 tokens have fewer
MOST_EDITS = 256
MOST_WANTED = 512  # tensors of one request
Pairs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Edits:
    """What is changed on the way; all of it holds at once."""

    force: Pairs = ()  # [step, token id]: from 0
    off: tuple[str, ...] = ()  # heads that hand over nothing: "decoder.2.cross.3", counted from 1
    even: tuple[str, ...] = ()  # heads that look at everything alike
    sw: tuple[str, ...] = ()  # switches: "scale", "mask", …

    def __post_init__(self) -> None:
        for name in ("force", "off", "even", "sw"):
            require(len(getattr(self, name)) <= MOST_EDITS, f"edits.{name} has more than {MOST_EDITS} entries")
        for pair in self.force:
            require(len(pair) == 2, f"edits.force holds {list(pair)!r:.80}; [step, token id] is wanted")


@dataclass(frozen=True)
class Search:
    """How tokens are chosen while writing."""

    kind: Literal["greedy", "beam", "sample"] = "greedy"
    beam_size: int = 4
    length_penalty: float | None = None  # None: the run's
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.beam_size <= 16, f"search.beam_size must be from 1 to 16, not {self.beam_size}")
        penalty = self.length_penalty
        require(
            penalty is None or abs(penalty) <= 100, f"search.length_penalty must be from -100 to 100, not {penalty}"
        )
        require(0 <= self.temperature <= 100, f"search.temperature must be from 0 to 100, not {self.temperature}")
        require(0 <= self.seed < 1 << 32, f"search.seed must be from 0 to 2^32 - 1, not {self.seed}")
        require(0 <= self.top_k < 1 << 31, f"search.top_k must be 0 (all) or positive, not {self.top_k}")
        if not all(map(math.isfinite, (self.temperature, self.top_p, self.min_p))):
            raise InputError("search: temperature, top_p and min_p must be finite numbers")


@dataclass(frozen=True)
class PassRequest:
    """One text through the model: written freely, and an answer read in one pass."""

    text: str
    target: str | None = None  # an answer to read, as text …
    answer: tuple[int, ...] | None = None  # … or as ids, the end token last; neither: what is written
    edits: Edits = field(default_factory=Edits)
    search: Search = field(default_factory=Search)
    look: Literal["writing", "scoring"] = "writing"  # of which of the two the tensors are
    write: bool = True  # whether to write at all; if not, there must be an answer
    keep: bool = True  # whether tensors are kept to be asked for
    max_tokens: int | None = None  # that are written
    checkpoint: str | None = None  # best, latest, average or step_N; None: the one the page was opened with

    def __post_init__(self) -> None:
        letters = max(len(self.text), len(self.target or ""))
        require(letters <= MOST_LETTERS, f"the text has {letters:,} letters; at most {MOST_LETTERS:,} are read")
        most = self.max_tokens
        require(most is None or 1 <= most <= MOST_ANSWER, f"max_tokens must be from 1 to {MOST_ANSWER}, not {most}")
        given = self.target is not None or self.answer is not None
        require(self.target is None or self.answer is None, "target and answer were both given: one is enough")
        require(given or (self.write and self.look == "writing"), "there is nothing to read: write, or give an answer")
        require(self.write or self.look == "scoring", "nothing is written: look must be 'scoring'")


@dataclass(frozen=True)
class Wanted:
    """One tensor of a pass, or (model:NAME) a parameter; part of it, or shrunk."""

    name: str
    index: tuple[int, ...] = ()  # tensor[i][j]…
    pool: int | None = None  # the last two dimensions shrunk to at most this, by maximum

    def __post_init__(self) -> None:
        require(self.pool is None or 1 <= self.pool <= 1024, f"pool must be from 1 to 1024, not {self.pool}")


@dataclass(frozen=True)
class TensorRequest:
    """Some tensors of a pass."""

    id: str
    wanted: tuple[Wanted, ...]
    dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        require(len(self.wanted) <= MOST_WANTED, f"{len(self.wanted)} tensors were asked for, at most {MOST_WANTED}")


@dataclass(frozen=True)
class OfPass:
    """Something about a pass that was made before."""

    id: str
