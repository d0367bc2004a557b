"""Every solution passes, every stub fails, every mistake is told as itself, and nobody's right answer is rejected."""

import sys
from pathlib import Path

import pytest
from torch import Tensor

from clearhead.learn.exercise import Exercise
from clearhead.learn.exercises import course, file_names
from clearhead.learn.guessing import SITUATIONS
from clearhead.learn.judge import SEED, check
from clearhead.learn.likely import rank, right_outcome, variant, wrong_outcome
from clearhead.learn.load import load_exercise
from clearhead.learn.source import our_parts, write_file
from clearhead.learn.trying import difference
from clearhead.learn.verdict import PASSED, UNWRITTEN
from clearhead.transformer import LayerNorm
from tests.learn.answers import Answer, everything, judge, read

EXERCISES = list(course().values())
ANSWERS = everything()


def name(exercise: Exercise) -> str:
    return exercise.name


@pytest.mark.parametrize("exercise", EXERCISES, ids=name)
def test_our_own_parts_pass(exercise: Exercise) -> None:
    ours = our_parts(exercise)
    verdict = check(exercise, **{part: ours[part] for part in exercise.parts})
    assert verdict.status == PASSED, str(verdict)


@pytest.mark.parametrize("exercise", EXERCISES, ids=name)
def test_the_solution_as_a_file_passes_and_the_stub_is_unwritten(
    exercise: Exercise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    for solved, status in ((True, PASSED), (False, UNWRITTEN)):
        path = tmp_path / file_names()[exercise.name]
        path.write_text(write_file(exercise, course(), file_names(), solved), encoding="utf-8")
        verdict = check(exercise, load_exercise(tmp_path, exercise, course(), file_names(), own=()))
        assert verdict.status == status, str(verdict)
        assert solved or verdict.part == exercise.parts[0]


HEAVY = {"decoder", "decoding", "train"}  # a second each
MISTAKES = [  # some in every run, all of them in the long one
    pytest.param(
        exercise,
        index,
        id=f"{exercise.name}-{index}-{exercise.mistakes[index].id}",
        marks=[pytest.mark.long] if index % (99 if exercise.name in HEAVY else 4) else [],
    )
    for exercise in EXERCISES
    for index in range(len(exercise.mistakes))
]


@pytest.mark.parametrize(("exercise", "index"), MISTAKES)
def test_a_mistake_is_told_as_itself(exercise: Exercise, index: int) -> None:
    mistake = exercise.mistakes[index]
    parts = variant(exercise, mistake)
    if parts is None:
        pytest.skip("known by its findings")
    trials = [trial for trial in exercise.trials if trial.part == mistake.part]
    outcomes = [wrong_outcome(exercise, mistake, trial, SEED + number) for number, trial in enumerate(trials)]
    wrong = [
        number
        for number, trial in enumerate(trials)
        if difference(outcomes[number], right_outcome(exercise, trial, SEED + number), trial)
    ]
    if wrong:  # as a check does, but without looking for the smallest input, which takes most of the time
        likely, _ = rank(exercise, mistake.part, parts, trials, outcomes, SEED, wrong[0])
    else:  # only a property tells
        verdict = check(exercise, **{part: parts[part] for part in exercise.parts})
        assert verdict.part == mistake.part, str(verdict)
        likely = verdict.likely
    assert likely
    # two mistakes may raise the same error: then the line tells them apart, which a text without a file has not
    tied = 2 if outcomes and outcomes[0].error is not None else 1
    assert mistake.id in [one.id for one in likely[:tied]], likely


@pytest.mark.parametrize("answer", [answer for answer in ANSWERS if answer.right], ids=str)
def test_right_answers_pass(answer: Answer, tmp_path: Path) -> None:
    verdict = judge(answer, tmp_path)
    assert verdict.status == PASSED, str(verdict)


WRONG = [answer for answer in ANSWERS if not answer.right]


def param(answer: Answer) -> object:
    """Every fourth in every run, of the heavy ones the first; all of them in the long one."""
    index = [x for x in WRONG if x.exercise == answer.exercise].index(answer)
    later = index % (99 if answer.exercise in HEAVY else 4)
    return pytest.param(answer, marks=[pytest.mark.long] if later else [], id=str(answer))


@pytest.mark.parametrize("answer", [param(answer) for answer in WRONG])
def test_wrong_answers_are_rejected_with_their_cause(answer: Answer, tmp_path: Path) -> None:
    verdict = judge(answer, tmp_path)
    assert verdict.status != PASSED
    told = [likely.id for likely in verdict.likely[:2]]
    assert set(told) & set(answer.causes), f"told {told}, wanted {answer.causes}\n{verdict}"


@pytest.mark.parametrize("exercise", EXERCISES, ids=name)
def test_an_exercise_has_what_it_needs(exercise: Exercise) -> None:
    answers = read(exercise.name)
    assert sum(not answer.right for answer in answers) >= 6
    assert sum(answer.right for answer in answers) >= 3
    assert len(exercise.hints) == 3


def test_situations_that_are_guessed_from_are_tried() -> None:
    tried = {(trial.part, trial.what) for exercise in EXERCISES for trial in exercise.trials}
    assert tried >= set(SITUATIONS)


def test_an_unknown_mistake_is_guessed_from_where_it_shows() -> None:
    def twice(self: LayerNorm, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 2e-5).sqrt() * self.weight + self.bias

    verdict = check("layers", LayerNorm=type("Twice", (LayerNorm,), {"forward": twice}))
    assert [likely.id for likely in verdict.likely] == ["norm-epsilon"]
    assert "once, under the root" in verdict.likely[0].say
