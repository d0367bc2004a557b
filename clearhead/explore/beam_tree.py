"""Beam search as a tree: what was kept at each step, what was pruned, and which hypotheses ended.

The search itself is clearhead/decoding/beam.py, unchanged. It runs on steps that remember every distribution and every
choice; from these the tree is read off afterwards.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.steps import Hypothesis
from clearhead.explore.readings import Reading
from clearhead.explore.writing import EditedSteps, Written, end_of, forbidden, likeliest, room
from clearhead.model.trace import Edit

PRUNED = 2  # of each step, the best candidates that did not make it


@dataclass(frozen=True)
class Node:
    """One candidate of one step."""

    token: int
    log_prob: float  # of this token
    total: float  # the sum so far, by which candidates compete
    parent: int  # its place in the column before; 0 in the first
    kept: bool
    finished: bool  # took the end token, or was cut off at the greatest length
    score: float | None = None  # a finished one's total, divided by the length penalty


class WatchedSteps(EditedSteps):
    """Remembers which rows went on, and with which tokens."""

    def __init__(self, loaded: LoadedModel, reading: Reading, edit: Edit) -> None:
        super().__init__(loaded, reading, edit)
        self.taken: list[list[int]] = []  # tokens of each step's live rows

    def step(self, tokens: Tensor) -> Tensor:
        self.taken.append(tokens.tolist())
        return super().step(tokens)


@torch.inference_mode()
def search(
    loaded: LoadedModel, reading: Reading, how: BeamSearch, edit: Edit | None = None, most: int | None = None
) -> tuple[Written, list[list[Node]]]:
    """The best hypothesis, and all steps as columns of nodes, best first, the pruned ones last."""
    limit, end = room(loaded, reading, most), end_of(loaded)
    steps = WatchedSteps(loaded, reading, edit or {})
    best = beam_search(steps, [list(reading.prompt)], [limit], end, how)[0][0]
    columns = tree(steps, how, end, limit)
    ids = [*best.tokens, *([end] if best.finished and end is not None else [])]
    return Written(ids, best.log_probs, tops(columns, steps, ids), best.finished), columns


def beam_settings(loaded: LoadedModel, beam_size: int, length_penalty: float | None) -> BeamSearch:
    """The run's search, with this many beams."""
    settings = loaded.settings
    penalty = settings.length_penalty if length_penalty is None else length_penalty
    constraints = Constraints(forbidden=forbidden(loaded))
    return BeamSearch(beam_size, penalty, settings.length_form, 1, settings.refill, constraints)


def tree(steps: WatchedSteps, how: BeamSearch, end: int | None, limit: int) -> list[list[Node]]:
    """Go through the distributions again as the search did: extend, end, prune."""
    columns: list[list[Node]] = []
    live, totals, open_slots = [0], [0.0], how.beam_size  # rows of `seen`, and which node each is
    nodes = [0]
    for number, seen in enumerate(steps.seen):
        scores = seen[live].clone()
        for token in how.constraints.forbidden:
            scores[:, token] = -math.inf
        wanted = (2 * how.beam_size if how.refill else how.beam_size) + PRUNED
        ranked, index = (
            (torch.tensor(totals, dtype=scores.dtype)[:, None] + scores).flatten().topk(min(wanted, scores.numel()))
        )
        column, next_nodes, ended = list[Node](), list[int](), 0
        for place, (total, flat) in enumerate(zip(ranked.tolist(), index.tolist(), strict=True)):
            if total == -math.inf:
                continue
            row, token = divmod(flat, scores.size(1))
            ends = token == end or number + 1 >= limit
            chosen = place < open_slots
            alive = not ends and (len(next_nodes) < how.beam_size if how.refill else chosen)
            finished = ends and chosen
            ended += finished
            score = total / how.penalty(number + 1) if finished else None
            if alive:
                next_nodes.append(len(column))
            log_prob = float(seen[live[row], token])
            column.append(Node(token, log_prob, total, nodes[row], alive or finished, finished, score))
        columns.append(column)
        if number >= len(steps.taken):
            break
        nodes, totals = next_nodes, [column[place].total for place in next_nodes]
        live = list(range(len(nodes)))  # the search puts live rows first, best first
        assert steps.taken[number][: len(live)] == [column[place].token for place in nodes]
        open_slots = how.beam_size if how.refill else open_slots - ended
    return columns


def tops(columns: list[list[Node]], steps: WatchedSteps, ids: list[int]) -> list[list[tuple[int, float]]]:
    """The likeliest tokens at each step of one hypothesis: of the row it went through."""
    result, path = [], walk_back(columns, ids)
    for number in range(len(ids)):
        kept = [place for place, node in enumerate(columns[number - 1]) if node.kept and not node.finished]
        row = 0 if number == 0 else kept.index(path[number - 1])
        result.append(likeliest(steps.seen[number][row]))
    return result


def walk_back(columns: list[list[Node]], ids: list[int]) -> list[int]:
    """The nodes of a hypothesis, from the first token to the last."""
    for start, node in enumerate(columns[len(ids) - 1]):
        place, path = start, [start]
        matches = node.token == ids[-1] and node.kept
        for number in range(len(ids) - 1, 0, -1):
            place = columns[number][place].parent
            path.append(place)
            matches = matches and columns[number - 1][place].token == ids[number - 1]
        if matches:
            return path[::-1]
    raise AssertionError("the hypothesis is not in its tree")


def hypotheses(columns: list[list[Node]]) -> list[Hypothesis]:
    """Every hypothesis that finished, best first, the end token included."""
    found = []
    for number, column in enumerate(columns):
        for start, node in enumerate(column):
            if node.finished:
                assert node.score is not None
                tokens, log_probs, place = [], [], start
                for back in range(number, -1, -1):
                    here = columns[back][place]
                    tokens.append(here.token)
                    log_probs.append(here.log_prob)
                    place = here.parent
                found.append(Hypothesis(tokens[::-1], log_probs[::-1], True, node.score))
    return sorted(found, key=lambda one: -one.score)
