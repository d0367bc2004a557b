"""Parallel text: two files whose lines translate each other, or one file with both in columns.

Everything rests on line n of one file belonging to line n of the other. So nothing that could shift one against the
other is tolerated, and what cannot be used is taken out on both sides at once, counted, and reported with its line.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.batch import Example, Skipped
from clearhead.data.files import read_lines
from clearhead.errors import InputError


@dataclass(frozen=True)
class Parallel:
    """Usable pairs, the line (from 1) each comes from, and what was left out."""

    texts: list[Example]
    lines: list[int]
    files: str
    skipped: list[Skipped]

    def part(self, chosen: Sequence[int], with_skipped: bool) -> "Parallel":
        """These pairs only."""
        texts, lines = [self.texts[i] for i in chosen], [self.lines[i] for i in chosen]
        return Parallel(texts, lines, self.files, self.skipped if with_skipped else [])


def read_files(source: Path, target: Path, strict: bool) -> Parallel:
    """Two files, line by line. `strict` for validation and test, which must be used whole or not at all."""
    sources, targets = read_lines(source, strict), read_lines(target, strict)
    if len(sources) != len(targets):
        raise InputError(
            f"{source} has {len(sources):,} lines, but {target} has {len(targets):,}: line n of one must belong to "
            "line n of the other"
        )
    return choose(list(zip(sources, targets, strict=True)), (str(source), str(target)), strict)


def read_columns(path: Path, strict: bool) -> Parallel:
    """The first two columns of a file with tabs between them; every line must have as many columns as the first."""
    pairs: list[tuple[str | None, str | None]] = []
    columns = 0
    for number, line in enumerate(read_lines(path, strict), 1):
        if line is None or not line.strip():
            pairs.append((line, line))
            continue
        cells = line.split("\t")
        columns = columns or len(cells)
        if len(cells) != columns or columns < 2:
            wanted = f"{columns} like the lines before" if columns > 1 else "at least 2, with a tab between them"
            raise InputError(f"{path}, line {number}: {len(cells)} columns; wanted {wanted}")
        pairs.append((cells[0], cells[1]))
    found = choose(pairs, (str(path), str(path)), strict)
    if columns > 2:  # read, but not without a word
        found.skipped.append(
            Skipped(columns - 2, f"columns of {columns}, of which two are read", str(path), "left out")
        )
    return found


def choose(pairs: Sequence[tuple[str | None, str | None]], files: tuple[str, str], strict: bool) -> Parallel:
    """The pairs that can be used. White space around a text is not part of it."""
    texts, lines = [], []
    reasons: Counter[str] = Counter()
    first: dict[str, str] = {}
    for number, (source, target) in enumerate(pairs, 1):
        reason, file = "", files[0]
        if source is None or target is None:
            reason, file = "not UTF-8", files[source is not None]
        elif not source.strip() or not target.strip():
            reason, file = "empty on one side", files[bool(source.strip())]
            if source.strip() == target.strip():
                reason = "empty on both sides"
            elif strict:
                raise InputError(f"{file}, line {number}: empty, but its other side is not")
        if not reason:
            assert source is not None
            assert target is not None
            texts.append(Example(source.strip(), target.strip()))
            lines.append(number)
            continue
        reasons[reason] += 1
        first.setdefault(reason, f"{file}, line {number}")
    both = files[0] if files[0] == files[1] else f"{files[0]} and {files[1]}"
    if not texts:
        raise InputError(f"{both}: no line can be used; {', '.join(f'{n:,} {why}' for why, n in reasons.items())}")
    return Parallel(texts, lines, both, [Skipped(count, why, first[why]) for why, count in reasons.items()])


def hold_out(size: int, share: float) -> tuple[list[int], list[int]]:
    """Every so-manieth one for validation, the rest for training. Not the last ones: many files are sorted."""
    step = max(2, round(1 / share))
    validation = list(range(step - 1, size, step)) or [size - 1]
    if size < 2:
        raise InputError(f"only {size} example to train on; none can be kept for validation")
    kept = set(validation)
    return [i for i in range(size) if i not in kept], validation
