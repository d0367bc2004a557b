"""Every command that reads a run: its words, what of the run it reads and writes, and what its result is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command on a run: its words, what of the run it may write, and whether it may leave out what is damaged."""

    words: tuple[str, ...]
    reads: tuple[str, ...]  # patterns of the run's files; of the others it must not even notice garbage
    writes: tuple[str, ...] = ()
    leaves_out: bool = False  # … and say so
    result: str = ""  # a file of the run that must be as ever, where standard output is not the result
    timed: bool = False  # it says how long something took, which is never twice the same


RESUME = ("train", "recipe.toml", "--run", "RUN", "--set", "training.steps=8")
BEGIN = ("train", "recipe.toml", "--run", "OUT", "--from", "RUN", "--set", "training.steps=1")
TRAINED = (
    "latest",
    "best",
    "metrics.jsonl",
    "train.log",
    "config.toml",
    "tokenizer.json",
    ".lock",
    "data.json",
    "checkpoints/",
)
ALL = ("*",)
QUICK = ("translate", "score", "checkpoints", "train", "tokenizer encode")  # for the sample of the tests
DESCRIBE = (
    "plan",
    "data look",
    "data prepare",
    "shapes",
    "profile",
    "tokenizer decode",
    "tokenizer convert",
    "plot",
    "checkpoints",
    "tokenizer info",
    "tokenizer encode",
    "tokenizer explain",
)
WEIGHTS = ("config.toml", "tokenizer.json", "best", "latest", "*/state.json", "*/model.safetensors")
COMMON = {  # to which it is all the same what kind of run it is
    "checkpoints": Command(("checkpoints", "RUN"), ("config.toml", "best", "latest", "*/state.json"), leaves_out=True),
    "average": Command(
        ("average", "RUN", "--last", "2"),
        ("config.toml", "*/state.json", "*/model.safetensors"),
        ("checkpoints/average", ".lock"),
        True,
        "checkpoints/average/model.safetensors",
    ),
    "plot": Command(("plot", "RUN"), ("config.toml", "metrics.jsonl"), ("plots",), True),
    "shapes": Command(("shapes", "RUN", "--json", "--batch", "1", "--length", "8"), ("config.toml",)),
    "plan": Command(("plan", "RUN", "--tokens", "1M", "--devices", "A100", "--length", "8"), ("config.toml",)),
    "data look": Command(("data", "look", "RUN", "--json"), ("config.toml", "tokenizer.json")),
    "tokenizer info": Command(("tokenizer", "info", "RUN", "--json"), ("tokenizer.json",)),
    "tokenizer encode": Command(("tokenizer", "encode", "RUN", "lines.txt"), ("tokenizer.json",)),
    "tokenizer decode": Command(("tokenizer", "decode", "RUN", "ids.txt"), ("tokenizer.json",)),
    "profile": Command(
        ("profile", "RUN", "--batch", "1", "--length", "4", "--rounds", "1"), ("config.toml",), timed=True
    ),
    "export": Command(("export", "RUN", "OUT", "--to", "numpy"), WEIGHTS),
    "explore": Command(("explore", "RUN", "--text", "1 2", "-o", "OUT.html"), WEIGHTS),
    "ablate": Command(("ablate", "RUN", "1 2", "--json", "--max-tokens", "3"), WEIGHTS),
    "serve": Command(("serve", "RUN", "--describe", "--port", "0"), WEIGHTS),  # it loads all, and ends
}
EVERY = {
    "train": Command(RESUME, ALL, TRAINED, True, "checkpoints/step_00000008/model.safetensors"),
    "evaluate": Command(("evaluate", "RUN", "--json", "--limit", "2"), WEIGHTS),
}
COMMANDS = {
    "pairs": {
        "translate": Command(("translate", "RUN", "lines.txt"), WEIGHTS),
        "translate --checkpoint average": Command(
            ("translate", "RUN", "lines.txt", "--checkpoint", "average"), WEIGHTS
        ),
        "translate --checkpoint step_2": Command(("translate", "RUN", "lines.txt", "--checkpoint", "step_2"), WEIGHTS),
        "score": Command(("score", "RUN", "--source", "lines.txt", "--target", "lines.txt"), WEIGHTS),
        "attention": Command(("attention", "RUN", "1 2"), WEIGHTS, ("plots",)),
        **EVERY,
        **COMMON,
    },
    "text": {
        "generate": Command(("generate", "RUN", "the", "--max-tokens", "4", "--seed", "1"), WEIGHTS),
        "score": Command(("score", "RUN", "--text", "lines.txt"), WEIGHTS),
        "tokenizer explain": Command(("tokenizer", "explain", "the cat", "-t", "RUN"), ("tokenizer.json",)),
        "tokenizer encode": Command(("tokenizer", "encode", "RUN", "lines.txt"), ("tokenizer.json",)),
        "tokenizer convert": Command(("tokenizer", "convert", "RUN", "OUT.json"), ("tokenizer.json",)),
        **EVERY,
    },
    "counts": {
        "encode": Command(("encode", "RUN", "lines.txt", "--mean"), WEIGHTS),
        "encode --predict": Command(("encode", "RUN", "lines.txt", "--predict"), WEIGHTS),
        **EVERY,
    },
    "labels": {
        "predict": Command(("predict", "RUN", "lines.txt"), WEIGHTS),
        "predict --json": Command(("predict", "RUN", "lines.txt", "--json"), WEIGHTS),
        "plot": Command(("plot", "RUN"), ("metrics.jsonl", *WEIGHTS[:4]), ("plots",), True),  # weights as in predict
        "train --from": Command(BEGIN, WEIGHTS, result="../damaged-out/checkpoints/step_00000001/model.safetensors"),
        "serve": COMMON["serve"],
        "data look": COMMON["data look"],
        "data prepare": Command(("data", "prepare", "RUN", "--verify"), ("config.toml", "tokenizer.json")),
        **EVERY,
    },
}
# Commands that read no file of a run, and why they are not here.
NEW = "it makes a new run by training, as `train` does; one that is there is gone on with, which is tried as `train`"
OTHERS = "it reads files of others, not of a run: see fuzz"
COURSE = "it reads the folder of a learner, not a run: tests/learn"
ELSEWHERE: dict[tuple[str, ...], str] = {
    ("demo",): NEW,
    ("import",): OTHERS,
    ("doctor",): "it reads modules, not runs",
    ("tokenizer", "train"): OTHERS,
    ("lab", "list"): "it reads nothing",
    ("lab", "run"): "it reads its own results, not a run: tests/lab",
    ("lab", "report"): "it reads the results of the lab, not a run: tests/lab",
    **{("learn", name): COURSE for name in ("start", "check", "watch", "hint", "skip", "reset", "solution", "list")},
    **{("learn", name): COURSE for name in ("bug", "finish", "grade", "export")},
}
