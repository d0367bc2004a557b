"""The end of the course: the model that the learner wrote is trained by their loop, compared with ours, and saved.

Its weights are copied by name into `clearhead.model`; logits and gradients must agree, and so must what it writes:
`clearhead translate` on the run gives the same text as the learner's own greedy decoding.
"""

import copy
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from clearhead.data.pairs import Pairs
from clearhead.data.splits import Splits
from clearhead.data.splits import build as build_data
from clearhead.decoding.load import load
from clearhead.disk import make_folder, write_whole
from clearhead.learn.exercise import Draw
from clearhead.learn.exercises import file_names
from clearhead.learn.verdict import PASSED, WRONG, Verdict
from clearhead.model import EncoderDecoder, ModelConfig
from clearhead.run import CONFIG, MODEL, TOKENIZER, step_name, write_checkpoint
from clearhead.settings import from_dict, merge, to_dict
from clearhead.tokenizer.base import BOS, EOS, PAD
from clearhead.training.config import Recipe

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Task:
    """What is learned, and by how large a model."""

    data: dict[str, Any]
    model: dict[str, Any]
    steps: int
    warmup: int
    max_tokens: int  # of the target in a batch
    threads: int = 1

    def recipe(self, steps: int) -> Recipe:
        """As `clearhead train` would have it, so that the run is like any other."""
        training = {"steps": steps, "warmup": self.warmup, "max_tokens": self.max_tokens, "schedule": "noam"}
        return from_dict(
            Recipe,
            {
                "data": self.data,
                "model": {**self.model, "dropout": {"residual": 0.0, "embedding": 0.0}},
                "training": {**training, "label_smoothing": 0.1},
                "decoding": {"beam_size": 1},
            },
        )


SMALL = {"d_model": 64, "heads": 4, "d_ff": 128, "encoder_layers": 2, "decoder_layers": 2}
MIDDLE = {"d_model": 128, "heads": 4, "d_ff": 256, "encoder_layers": 2, "decoder_layers": 2}
TASKS = {
    "copy": Task({"task": "copy", "symbols": 10, "longest": 8}, SMALL, 1000, 200, 480),
    "dates": Task({"task": "dates", "examples": 100_000}, MIDDLE, 2600, 400, 1408, threads=2),
}
LEARNED = 0.95  # of the test lines exactly right
EXTRA = 10  # tokens that a translation may be longer than its source
# whose exercise a parameter belongs to, by a piece of its name; the first that fits
OWNER = {"norm": "layers", "feed_forward": "layers", "attention": "multihead", "embedding": "embedding"}


def finish(task: str, path: Path, steps: int | None, tell: Tell) -> Verdict:
    """Train, compare and save."""
    chosen = TASKS[task]
    parts = learners_parts()
    torch.set_num_threads(min(chosen.threads, os.cpu_count() or 1))
    recipe = chosen.recipe(steps or chosen.steps)
    splits = build_data(recipe.data)
    config = recipe.model_config(splits.train.kind, splits.train.head, splits.tokenizer.size)
    torch.manual_seed(1)
    model = parts["Transformer"](
        config.vocab_size, config.d_model, config.heads, config.d_ff, config.encoder_layers, 0.0
    )
    count = recipe.training.steps
    losses = parts["train"](model, told(batches(splits.train, chosen.max_tokens), count, tell), count, chosen.warmup)
    different = compare(model, config)
    if different is not None:
        return different
    save(model, recipe, splits, config, path, count)
    right, total, differing = written(model, parts["greedy"], splits, path)
    fell = f"the loss went from {losses[0]:.2f} to {losses[-1]:.2f}"
    message = f"learned in {count} steps: {right} of {total} exactly right; {fell}"
    if differing:
        source, mine, ours = differing
        said = f"clearhead translate reads {source!r} as {ours!r}, your greedy as {mine!r}"
        return Verdict("train", WRONG, "greedy", "values", f"{message}; but {said}", got=mine, wanted=ours)
    same = "your logits and gradients are those of clearhead.model; translate writes what your greedy writes"
    short = "that is not learned yet: with more --steps it is" if right < LEARNED * total else ""
    return Verdict("train", PASSED, message=message, remarks=tuple(filter(None, (same, short))))


def learners_parts() -> dict[str, Any]:
    """The parts that the end needs, from the learner's files or, where one is not passed, from ours."""
    parts: dict[str, Any] = {}
    for exercise, names in {"decoder": ["Transformer"], "decoding": ["greedy"], "train": ["train"]}.items():
        file = file_names().get(exercise)
        module = importlib.import_module(file.removesuffix(".py") if file else "clearhead.transformer")
        parts |= {name: getattr(module, name) for name in names}
    return parts


def batches(data: Any, max_tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Epoch after epoch: source (B, T) and target (B, S + 1), filled up with PAD, which is 0."""
    assert isinstance(data, Pairs)
    assert [data.tokenizer.special[name] for name in (PAD, BOS, EOS)] == [0, 1, 2]
    epoch = 0
    while True:
        for indices in data.plan(1, epoch, max_tokens):
            source, _ = data.sources.padded(indices, 0)
            target, _ = data.targets.padded(indices, 0)
            yield torch.from_numpy(source), torch.from_numpy(target)
        epoch += 1


def told(source: Iterator[tuple[Tensor, Tensor]], total: int, tell: Tell) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches, with a word now and then on how far it is."""
    for number, batch in enumerate(source):
        if number % 10 == 0:
            tell(min(number, total), total, "training")
        yield batch


# ---- the same as ours ----------------------------------------------------------------------------------------------


def compare(model: Any, config: ModelConfig) -> Verdict | None:
    """The learner's weights in our model: the same logits, the same gradients, or the first tensor that differs."""
    model = copy.deepcopy(model).double().eval()
    model.zero_grad()
    ours = EncoderDecoder(config).double().eval()
    weights = model.state_dict()
    try:
        ours.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        return Verdict(
            "train", WRONG, "Transformer", "values", "the weights do not fit clearhead.model", got=said[:300]
        )
    draw = Draw(0)
    source, target = (draw.integers(3, config.vocab_size, 3, length) for length in (7, 5))
    real = torch.ones(3, 7, dtype=torch.bool)
    real[1, 4:] = False
    mine, wanted = model(source, target, real), ours(source, target, real)
    size = max(1.0, wanted.abs().max().item())
    if mine.shape != wanted.shape or not torch.allclose(mine, wanted, atol=1e-4 * size):
        return Verdict("train", WRONG, "Transformer", "values", "the logits are not those of clearhead.model")
    direction = draw.normal(*wanted.shape)
    for logits in (mine, wanted):
        (logits * direction).sum().backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, parameter in model.named_parameters():
        right = gradients[name]
        assert right is not None
        if parameter.grad is None or not torch.allclose(
            parameter.grad, right, atol=1e-3 * max(1.0, right.abs().max().item())
        ):
            owner = next((exercise for piece, exercise in OWNER.items() if piece in name), "decoder")
            return Verdict(
                "train", WRONG, "Transformer", "gradients", f"the gradient of {name} is another: see exercise {owner}"
            )
    return None


def save(model: Any, recipe: Recipe, splits: Splits, config: ModelConfig, path: Path, step: int) -> None:
    """A run folder, as `clearhead train` would leave it."""
    make_folder(path)
    resolved = merge(recipe.to_dict(), {"model": to_dict(config)})
    splits.tokenizer.save(path / TOKENIZER)
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    write_checkpoint(path / "checkpoints" / step_name(step), {MODEL: weights}, {"step": step})
    write_whole(path / "latest", step_name(step) + "\n")
    write_whole(path / CONFIG, tomli_w.dumps(resolved))


def written(
    model: Any, greedy: Any, splits: Splits, path: Path, most: int = 1000
) -> tuple[int, int, tuple[str, str, str] | None]:
    """How many test lines the learner's greedy writes exactly right, of how many; and the first, if any, that
    `clearhead translate` writes otherwise: source, theirs, ours."""
    test = splits.test
    assert isinstance(test, Pairs)
    examples = test.examples(most)
    sources = [test.sources[number].tolist() for number in range(len(examples))]
    mine: list[str] = []
    for start in range(0, len(examples), 50):
        rows = range(start, min(start + 50, len(examples)))
        tokens = torch.from_numpy(test.sources.padded(rows, 0)[0])
        found = greedy(model, tokens, tokens != 0, 1, 2, tokens.size(1) + EXTRA)
        # a row that never ends is cut where `translate` cuts it
        mine += [splits.tokenizer.decode(row[: len(sources[i]) + EXTRA]) for i, row in zip(rows, found, strict=True)]
    texts = [example.source for example in examples]
    ours = [translation.text for translation in load(path).translate(texts, max_extra=EXTRA)]
    right = sum(text == example.target for text, example in zip(mine, examples, strict=True))
    both = zip(examples, mine, ours, strict=True)
    differing = next(((example.source, a, b) for example, a, b in both if a != b), None)
    return right, len(examples), differing
