"""Multi30k, English to German: BLEU against time, and on test 2016 with averaged checkpoints.

`make bench-multi30k` (`python -m bench.multi30k --minutes 60 --run runs/multi30k`). Trains the recipe `multi30k` in two
processes of one thread, to its end or for so many minutes of training (the same command goes on, and earlier calls
count), then scores every checkpoint on the validation set by greedy search, and averages of the last few by beam
search. The best of these is scored, once, on test 2016: sacreBLEU, cased and lowercased, with signatures. The test set
is read nowhere else. A run that has ended goes on with more steps: `--minutes 180 --set training.steps=3500`.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from sacrebleu.metrics import BLEU

from clearhead.data.files import data_folder, read_lines
from clearhead.decoding.load import load
from clearhead.machine import machine
from clearhead.run import Run, read_state
from clearhead.training.checkpoint import average


def lines(name: str) -> list[str]:
    return read_lines(data_folder() / "multi30k" / name)


def trained_seconds(run: Path) -> float:
    rows = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").is_file() else []
    return float(json.loads(rows[-1])["seconds"]) if rows else 0.0


AVERAGES = (1, 2, 3, 4, 6, 10, 16)


def train(run: Path, minutes: float, settings: list[str]) -> None:
    """Train until the steps end or the minutes are spent."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "clearhead", "train", "multi30k", "--into", str(run), "--set", "training.keep_last=1000"]
    command += [word for setting in settings for word in ("--set", setting)]
    job = subprocess.Popen(command)
    while job.poll() is None:
        time.sleep(1)
        if trained_seconds(run) > 60 * minutes:
            job.send_signal(signal.SIGTERM)
            job.wait()


def bleu(outputs: list[str], references: list[str], lowercase: bool) -> str:
    metric = BLEU(lowercase=lowercase)
    score = metric.corpus_score(outputs, [references]).score
    return f"{score:.2f}  ({metric.get_signature()})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in `clearhead train`")
    parser.add_argument("--run", type=Path, default=Path("runs/multi30k"))
    parser.add_argument("--skip-training", action="store_true", help="score what is there")
    options = parser.parse_args()
    print(machine(), flush=True)
    if not options.skip_training:
        train(options.run, options.minutes, options.set)
    run, source, wanted = Run(options.run), lines("val.en.gz"), lines("val.de.gz")
    print("validation, greedy search:")
    for folder in run.checkpoints():
        state = read_state(folder)
        outputs = [answer.text for answer in load(run.path, folder.name).translate(source, beam_size=1)]
        minutes = state["progress"]["seconds"] / 60
        score = BLEU().corpus_score(outputs, [wanted]).score
        loss = state["validation"].get("loss", float("nan"))
        print(f"  step {state['step']:>5}  {minutes:5.1f} minutes  loss {loss:.3f}  BLEU {score:.2f}", flush=True)
    print("validation, beam search, average of the last checkpoints:")
    scores = {}
    for count in AVERAGES:
        average(run, count)
        outputs = [answer.text for answer in load(run.path, "average").translate(source)]
        scores[count] = BLEU().corpus_score(outputs, [wanted]).score
        print(f"  {count:>2}  BLEU {scores[count]:.2f}", flush=True)
    used = average(run, max(scores, key=lambda count: scores[count]))
    source, wanted = lines("test_2016_flickr.en.gz"), lines("test_2016_flickr.de.gz")
    outputs = [answer.text for answer in load(run.path, "average").translate(source)]
    print(f"test 2016, beam search, average of {len(used)} checkpoints up to {used[-1].name}:")
    print(f"  cased      {bleu(outputs, wanted, False)}")
    print(f"  lowercased {bleu(outputs, wanted, True)}")


if __name__ == "__main__":
    main()
