"""Which mistake is it? From what the learner's part returned, and from the doctor's causes.

Two witnesses. First, each mistake that the exercise knows is carried out: our part with a few characters changed is
given the same arguments, and where it returns what the learner's part returned, on every trial that tells it from the
right one, that is the mistake. Second, properties of the bare function (rows that do not sum to one, a future that is
visible) become the doctor's findings, and its causes are ranked by them as for a whole model. A mistake that agrees
everywhere comes first; then what the doctor says; then mistakes that agree in part.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from clearhead.doctor.causes import Facts, diagnose, known
from clearhead.doctor.finding import ERROR, Finding, plain
from clearhead.learn.exercise import Exercise, Misfit, Mistake, Run, Sizes, Trial
from clearhead.learn.source import change, our_parts, source_of, with_text
from clearhead.learn.trying import Outcome, attempt, difference, unlike, unsteady
from clearhead.learn.verdict import Likely

CERTAIN, DOCTOR, PARTLY = 1.0, 0.8, 0.5
# what is behind a call that gives something else each time, by what `unsteady` says
CHANCE = {
    "dropout": Likely(
        "dropout-in-eval",
        "without its dropout it is right: dropout belongs to training, and goes on here in evaluation (F.dropout does "
        "unless `training=self.training` is said, and nn.Dropout if it is made in the call)",
    ),
    "unsteady": Likely(
        "unsteady",
        "the same call gives something else each time: a draw by chance, a layer made in the call (its weights are new "
        "each time), something remembered from one call to the next, or a dropout of your own that never stops?",
    ),
}


def variant(exercise: Exercise, mistake: Mistake) -> dict[str, Any] | None:
    """All parts, with this mistake made in one of them."""
    if mistake.text:
        return with_text(exercise, mistake.text)
    if not mistake.changes:
        return None
    text = source_of(exercise.source).text(mistake.part)
    return with_text(exercise, change(text, mistake.changes, f"{exercise.name}, {mistake.id}"))


def agreement(
    mistake: Mistake, exercise: Exercise, trials: Sequence[Trial], theirs: Sequence[Outcome], seed: int, first: int
) -> float:
    """Of the trials that tell the learner's part or the mistake from the right one, how many do both answer alike?

    Nothing, if they differ on the first trial that failed.
    """
    if not mistake.text and not mistake.changes:
        return 0.0
    alike = telling = 0
    order = sorted(range(len(trials)), key=lambda number: (number != first, number))
    if theirs and theirs[first].error is None:  # most mistakes are ruled out by one call
        once = said_once(exercise, mistake, trials[first], seed + first)
        if once.error is None and unlike(once.output, theirs[first].output, trials[first].tolerance):
            return 0.0
    for number in order:
        trial, mine = trials[number], theirs[number]
        wrong = wrong_outcome(exercise, mistake, trial, seed + number)
        # what fails in a special situation only may fail with other words; what always fails must fail alike
        both_fail = number > 0 and mine.error is not None and wrong.error is not None and theirs[0].error is None
        if not both_fail and (difference(mine, wrong, trial) or difference(wrong, mine, trial)):
            telling += 1
            if number == first:
                return 0.0
        elif difference(mine, right_outcome(exercise, trial, seed + number), trial) is not None:
            telling += 1
            alike += 1
    return alike / telling if telling else 0.0


@cache
def wrong_outcome(exercise: Exercise, mistake: Mistake, trial: Trial, seed: int) -> Outcome:
    """What our own part with a mistake in it makes of a trial."""
    parts = variant(exercise, mistake)
    assert parts is not None
    return attempt(trial, parts, our_parts(exercise), Sizes(trial.sizes), seed)


@cache
def said_once(exercise: Exercise, mistake: Mistake, trial: Trial, seed: int) -> Outcome:
    """The same by one call, without gradients."""
    parts = variant(exercise, mistake)
    assert parts is not None
    return attempt(trial, parts, our_parts(exercise), Sizes(trial.sizes), seed, once=True)


@cache
def right_outcome(exercise: Exercise, trial: Trial, seed: int) -> Outcome:
    """What our own part makes of a trial."""
    ours = our_parts(exercise)
    outcome = attempt(trial, ours, ours, Sizes(trial.sizes), seed)
    if outcome.error is not None:
        raise outcome.error  # a mistake of ours in the trial, which would make every answer right
    return outcome


def ask_properties(
    exercise: Exercise, part: str, parts: Mapping[str, Any], seed: int
) -> tuple[dict[str, dict[str, Any]], set[str], dict[str, str]]:
    """Findings of the bare function (id: evidence), the probes that passed, and the sentence of each finding."""
    found: dict[str, dict[str, Any]] = {}
    asked: set[str] = set()
    says: dict[str, str] = {}
    ours = our_parts(exercise)
    for property in exercise.properties:
        if property.part != part:
            continue
        try:
            evidence = property.ask(Run(parts, ours, Sizes(property.sizes), seed))
        except Exception:  # as the doctor has it: not armed, so it says nothing
            continue
        asked.add(property.finding.partition(".")[0])
        if evidence is not None and not property.finding.startswith("remark."):
            found[property.finding] = evidence
            says[property.finding] = property.message
    return found, asked - {id.partition(".")[0] for id in found}, says


def rank(
    exercise: Exercise,
    part: str,
    parts: Mapping[str, Any],
    trials: Sequence[Trial],
    theirs: Sequence[Outcome],
    seed: int,
    first: int = 0,
) -> tuple[tuple[Likely, ...], tuple[Mistake | None, ...]]:
    """The likely causes, most likely first, and the mistakes they stand for."""
    # of a part that fails on plain arguments, properties say nothing
    runs = not theirs or theirs[0].error is None or isinstance(theirs[0].error, Misfit)
    found, passed, says = ask_properties(exercise, part, parts, seed) if runs else ({}, set(), {})
    scores: dict[str, float] = {}
    mistakes: dict[str, Mistake] = {}
    for mistake in exercise.mistakes:
        if mistake.part != part:
            continue
        fit = agreement(mistake, exercise, trials, theirs, seed, first)
        score = CERTAIN if fit == 1.0 else PARTLY * fit
        if mistake.fits is not None:
            score = max(score, mistake.fits(found))
        if score > scores.get(mistake.id, 0.05):
            scores[mistake.id], mistakes[mistake.id] = score, mistake
    told = dict.fromkeys(mistake.id for mistake in exercise.mistakes if mistake.part == part)
    titles = {}
    for place, (id, title) in enumerate(doctors(found, passed)):
        if id in told:
            titles[id] = title
            scores[id] = max(scores.get(id, 0.0), DOCTOR - 0.1 * place)
    for mistake in exercise.mistakes:
        if mistake.part == part and mistake.id in scores:
            mistakes.setdefault(mistake.id, mistake)
    order = sorted(scores, key=lambda id: -scores[id])
    if order and scores[order[0]] == CERTAIN:  # what agrees only in part is not worth mentioning beside it
        order = [id for id in order if scores[id] >= DOCTOR]
    likely = [Likely(id, mistakes[id].say if id in mistakes else titles[id]) for id in order]
    certain = bool(order) and scores[order[0]] == CERTAIN
    if trials and runs and not certain:
        sizes = Sizes(trials[first].sizes)
        if why := unsteady(trials[first], parts, our_parts(exercise), sizes, seed + first):
            mistakes.pop(CHANCE[why].id, None)
            likely = [CHANCE[why], *(entry for entry in likely if entry.id != CHANCE[why].id)]
    if not likely:
        likely = [Likely(id, said) for id, said in says.items()]
    return tuple(likely[:3]), tuple(mistakes.get(entry.id) for entry in likely[:3])


def doctors(found: Mapping[str, dict[str, Any]], passed: set[str]) -> list[tuple[str, str]]:
    """The doctor's causes whose rules speak for these findings, likeliest first: id and title."""
    if not found:
        return []
    findings = [
        Finding(id, ERROR, id, {key: plain(value) for key, value in held.items()}) for id, held in found.items()
    ]
    facts = Facts(findings)
    speaking = {cause.id for cause, fits, _ in known() if fits(facts) > 0}
    causes, _ = diagnose(findings, passed)
    return [(cause.id, cause.title) for cause in causes if cause.id in speaking][:3]
