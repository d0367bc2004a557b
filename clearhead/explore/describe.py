"""What the page knows of a run before any text is read: sizes, attentions, switches, examples, and the lines of code
that compute what it shows, read from the installed package itself."""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from clearhead import __version__
from clearhead.decoding.alignment import entropy
from clearhead.decoding.load import LoadedModel
from clearhead.errors import InputError
from clearhead.explore.interventions import SWITCHES, masked_places, places
from clearhead.explore.readings import Reading
from clearhead.explore.writing import forbidden
from clearhead.model import ModelConfig, Trace
from clearhead.run import Run
from clearhead.settings import to_dict
from clearhead.tokenizer.bytepair import BytePair
from clearhead.tokenizer.explain import show

FORMAT = "clearhead-explore-1"
MOST_WORDS = 64  # whose merges are shown

# what the lab found about training without a piece: statement, word and why; a test holds them to docs/lab
VERDICTS = {
    "scaling": (
        "Without it training ends worse.",
        "holds",
        "Scores start too large and each update moves them too far: sorting ends 0.51 ± 0.10 nats higher at d = 128.",
    ),
    "causal-mask": (
        "Without it generation fails.",
        "holds",
        "A model trained without reaches a low loss by reading the answer, and fails when there is no future to read.",
    ),
    "positions": (
        "A causal language model needs no positions: its mask tells the order.",
        "does not hold here",
        "It is 0.55 ± 0.03 bits per character worse without, and an encoder-decoder copies less than a third.",
    ),
    "heads": (
        "The model is better for it.",
        "does not hold here",
        "Several heads look at different places, but trained with one head the tiny model's loss is lowest.",
    ),
    "norm-and-residual": (
        "Deep stacks need layer norm.",
        "holds only if",
        "… the stack is deep: trained without, two layers do no worse; 24 layers do.",
    ),
}

# the lines beside each step of view 3: file, and the first and last line as they begin there
CODE: dict[str, tuple[str, str, str]] = {
    "tokens": ("tokenizer/bytepair.py", 'return _as_ids("".join(map(look_up, self._split(text))))', ""),
    "characters": ("tokenizer/characters_and_integers.py", "return [self._ids[character] for", ""),
    "integers": ("tokenizer/characters_and_integers.py", "ids.append(len(self.special)", ""),
    "pieces": ("tokenizer/pieces.py", 'return self._join(self._start(f" {text}"))', ""),
    "delegated": ("tokenizer/delegated.py", "found: list[int] = self._inner.encode(", ""),
    "embedding": ("model/embedding.py", 'x = tap("tokens"', 'x = x + tap("positions"'),
    "norm": ("model/norm.py", "wide = x.to(", "normal = (centred"),
    "rms": ("model/norm.py", "mean_square = (wide", "return (wide / torch.sqrt(mean_square"),
    "projections": ("model/attention.py", "q = self.split_heads(self.query(x)", "v = self.split_heads("),
    "rotation": ("model/attention.py", "if inputs.rotation is not None:", "q, k = rotate("),
    "scores": ("model/attention.py", "scores = (q / math.sqrt(q.size(-1))) @", ""),
    "mask": ("model/attention.py", 'may_attend = tap("mask"', "scores = scores.masked_fill("),
    "softmax": ("model/attention.py", "top = wide.amax(", "return (powers /"),
    "weights": ("model/attention.py", 'weights = tap("weights"', ""),
    "mix": ("model/attention.py", "return dropout(weights,", ""),
    "out": ("model/attention.py", 'return tap("output", self.out(', ""),
    "residual": ("model/residual.py", 'x = tap("residual"', "return x if self.pre"),
    "feed_forward": ("model/feedforward.py", 'hidden = tap("hidden", self.activate(self.inner', ""),
    "feed_forward_gated": ("model/feedforward.py", 'hidden = tap("hidden", self.activate(self.gate', ""),
    "feed_forward_out": ("model/feedforward.py", 'return tap("output"', ""),
    "logits": ("model/heads.py", 'return tap("logits"', ""),
}

EXAMPLES = {
    "dates": ("3 mars 2029", "Samstag, 3. März 2029", "2029年3月3日"),
    "copy": ("3 1 2", "5 5 1 0 4", "9 8 7"),
    "reverse": ("3 1 2", "5 5 1 0 4", "9 8 7"),
    "sort": ("3 1 2", "5 5 1 0 4", "9 8 7"),
    "count": ("3 1 2 3", "5 5 1 0 5", "9 8 7"),
}
OTHERS = {
    "encoder-decoder": ("A dog runs.", "Two people walk along the street.", "A man is cooking."),
    "decoder": ("To be, or not", "The king", "def main("),
    "encoder": ("To be, or <mask> to be", "The <mask> is dead.", "All the world's a <mask>."),
}


def describe(loaded: LoadedModel, run: Run, checkpoint: str) -> dict[str, Any]:
    """The model and its run."""
    config = loaded.model.config
    return {
        "format": FORMAT,
        "version": __version__,
        "run": run.path.name,
        "path": str(run.path),
        "checkpoint": run.checkpoint(checkpoint).name,
        "kind": config.kind,
        "config": to_dict(config),
        "letters": letters(config),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "parameter_names": [name for name, _ in loaded.model.named_parameters()],
        "dtype": str(loaded.model.embedding.weight.dtype).removeprefix("torch."),
        "tokenizer": type(loaded.tokenizer).__name__,
        "special": loaded.tokenizer.special,
        "forbidden": list(forbidden(loaded)),
        "attentions": [
            {
                "at": str(place),
                "path": place.path,
                "stack": place.stack,
                "layer": place.layer + 1,
                "kind": place.kind,
                "heads": config.heads,
                "kv_heads": config.key_value_heads,
                "masked": place in masked_places(config),
            }
            for place in places(config)
        ],
        "switches": [described_switch(name) for name, switch in SWITCHES.items() if switch.edit(config)],
        "examples": examples(loaded, run),
        "label_smoothing": _number(run, "label_smoothing"),
        "steps": _number(run, "steps"),
        "code": {name: lines for name in CODE if (lines := code_lines(name)) is not None},
    }


def describe_unread(run: Run) -> dict[str, Any]:
    """A run without a checkpoint: there is no model to ask yet, but its training can be watched."""
    told = {"format": FORMAT, "version": __version__, "run": run.path.name, "path": str(run.path), "kind": None}
    return {**told, "checkpoint": None, "examples": [], "steps": _number(run, "steps")}


def letters(config: ModelConfig) -> dict[str, int]:
    """The sizes by the letters that shapes are written in."""
    sizes = {"D": config.d_model, "H": config.heads, "G": config.key_value_heads, "d": config.d_head}
    return {**sizes, "F": config.d_ff, "V": config.vocab_size}


def described_switch(name: str) -> dict[str, Any]:
    switch = SWITCHES[name]
    claim, verdict, why = VERDICTS.get(switch.experiment, ("", "", ""))
    row = {"id": name, "name": switch.name, "code": switch.code, "experiment": switch.experiment}
    return {**row, "claim": claim, "verdict": verdict, "why": why}


def examples(loaded: LoadedModel, run: Run) -> list[str]:
    """Three texts to begin with, that this tokenizer can read."""
    data = run.settings.get("data", {})
    task = data.get("task") if isinstance(data, dict) else None
    wanted = EXAMPLES.get(task, OTHERS[loaded.model.config.kind]) if isinstance(task, str) else None
    return list(filter(lambda text: _readable(loaded, text), wanted or OTHERS[loaded.model.config.kind]))


def _readable(loaded: LoadedModel, text: str) -> bool:
    try:
        return bool(loaded.tokenizer.encode_ordinary(text))
    except InputError:
        return False


def _number(run: Run, key: str) -> Any:
    settings = run.settings.get("training", {})
    found = settings.get(key) if isinstance(settings, dict) else None
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def code_lines(name: str) -> dict[str, Any] | None:
    """The lines of the installed package that do a step, with their file and number; None if they were changed."""
    file, first, last = CODE[name]
    text = files("clearhead").joinpath(file).read_text(encoding="utf-8").splitlines()
    start = next((number for number, line in enumerate(text) if line.strip().startswith(first)), None)
    if start is None:
        return None
    end = start
    if last:
        end = next((n for n in range(start, min(start + 12, len(text))) if text[n].strip().startswith(last)), start)
    lines = text[start : end + 1]
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return {"file": f"clearhead/{file}", "line": start + 1, "text": "\n".join(line[indent:] for line in lines)}


def pieces(loaded: LoadedModel, text: str) -> list[dict[str, Any]] | None:
    """Each word of a text with its bytes and every merge as it happens; None where tokens are not merged bytes."""
    tokenizer = loaded.tokenizer
    if not isinstance(tokenizer, BytePair):
        return None
    result = []
    for word in tokenizer.split(text)[:MOST_WORDS]:
        begun, steps = tokenizer.explain(word)
        merges = [{"rank": rank, "pieces": _shown(after)} for rank, _, after in steps]
        row = {"word": show(word.encode("utf-8", "surrogateescape")), "bytes": _shown(begun), "merges": merges}
        result.append({**row, "ids": tokenizer.encode_ordinary(word)})
    return result


def _shown(tokens: Iterable[bytes]) -> list[str]:
    return [show(token) for token in tokens]


def cache_bytes(loaded: LoadedModel, reading: Reading) -> dict[str, Any] | None:
    """Bytes of keys and values that decoding keeps: self-attention's grow by a token a step, cross-attention's are
    made once, from the source. None for a model that does not write."""
    config = loaded.model.config
    if config.kind == "encoder":
        return None
    size = loaded.model.embedding.weight.element_size()
    token = 2 * config.decoder_layers * config.key_value_heads * config.d_head * size  # keys and values
    crossing = config.kind == "encoder-decoder"
    steps = [token * (len(reading.prompt) + number) for number in range(len(reading.answer))]
    return {"token": token, "self": steps, "cross": token * len(reading.source) if crossing else 0}


def described(name: str, taken: Trace) -> dict[str, Any]:
    """One line of the table of tensors."""
    tensor = taken.tensors[name]
    values = tensor.float()
    low, mean, high = (float(x) for x in (values.min(), values.mean(), values.max()))
    kind = str(tensor.dtype).removeprefix("torch.")
    shape, letters = list(tensor.shape), taken.letters[name]
    return {"name": name, "letters": letters, "shape": shape, "dtype": kind, "min": low, "mean": mean, "max": high}


def attention_rows(loaded: LoadedModel, taken: Trace) -> list[dict[str, Any]]:
    """Each attention with the entropy of its heads in bits, averaged over its rows."""
    rows = []
    for place in places(loaded.model.config):
        weights = taken.tensors[f"{place.path}.weights"][0].float()
        rows.append({"at": str(place), "path": place.path, "entropy": entropy(weights).mean(-1).tolist()})
    return rows
