"""A recipe: everything a training is told, as one annotated TOML file of five tables.

`data`, `tokenizer`, `training` and `decoding` become frozen dataclasses; so does `model`, as soon as the data say which
kind and vocabulary it needs. A key that does not exist is an error that names the nearest one that does, because a
misspelt key that is silently ignored costs a training run. Recipes come with the package and are found by name (`copy`,
`dates`, `multi30k`); a path names one of your own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from clearhead.data.files import anchor, anchored
from clearhead.data.settings import FILE_KEYS, TOKENIZER_PATHS, DataSettings, TokenizerSettings
from clearhead.decoding_settings import DecodingSettings
from clearhead.errors import InputError, require
from clearhead.ranges import MOST_THREADS, require_numbers
from clearhead.run import CONFIG, read_toml
from clearhead.settings import convert, from_dict, merge, nearest, parse_assignment, to_dict

if TYPE_CHECKING:
    from clearhead.model import ModelConfig

RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class TrainingSettings:
    """The table `training`."""

    ELSEWHERE: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("lr", "learning_rate", "max_lr"), "'peak', the highest rate"),
        **dict.fromkeys(
            ("epochs", "num_epochs", "max_epochs", "num_train_epochs", "max_steps", "max_iters"),
            "'steps', the number of updates",
        ),
        **dict.fromkeys(
            ("batch_size", "batch", "per_device_train_batch_size"),
            "'max_tokens', the tokens to predict in an update",
        ),
        **dict.fromkeys(("grad_clip", "max_grad_norm", "clip_norm"), "'clip'"),
        **dict.fromkeys(("warmup_steps", "num_warmup_steps", "warmup_iters"), "'warmup'"),
        **dict.fromkeys(("gradient_accumulation_steps", "grad_accum"), "'accumulate'"),
        **dict.fromkeys(("eval_interval", "eval_every", "eval_steps"), "'validate_every'"),
        "early_stopping": "'patience'",
    }

    steps: int = 10_000  # updates of the weights
    seed: int = 1
    max_tokens: int = 4096  # target tokens per update, padding not counted, over all processes
    accumulate: int = 1  # each process computes its part of an update in this many pieces, to save memory
    label_smoothing: float = 0.0  # ε, spread evenly over all classes
    clip: float = 1.0  # the gradient is scaled down to this norm; 0: left as it is

    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0  # adamw and muon, on matrices; never on norms and biases

    freeze: tuple[str, ...] = ()  # patterns of parameters that stay as they are: "embedding.*", "*.layers.[01].*"
    layer_decay: float = 1.0  # each layer's rate, as a fraction of that of the layer above it; the head has the whole

    schedule: Literal["noam", "cosine", "constant"] = "noam"
    warmup: int = 4000
    factor: float | None = None  # noam: factor · d_model^-1/2 · min(n^-1/2, n · warmup^-3/2); 1 unless set
    peak: float | None = None  # the highest rate; noam takes it in place of factor, the others need it
    final: float = 0.0  # cosine: the last rate, as a fraction of the peak
    cooldown: int = 0  # noam, constant: over this many last steps the rate falls to zero

    # 16 bits: autocast, the weights stay float32; auto: bfloat16 where the processor multiplies it natively
    precision: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    compile: bool = False  # torch.compile; on a CPU it needs a C++ compiler
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: int | None = None  # of the CPU, for each process; None: as many as PyTorch takes
    parallel: Literal["ddp", "fsdp"] = "ddp"  # under torchrun: whole copies, or shards (FSDP2)

    log_every: int = 10
    validate_every: int = 500
    checkpoint_every: int | None = None  # None: at each validation
    keep_last: int = 3
    keep_best: int = 1
    measure: Literal["loss", "exact", "BLEU", "chrF", "accuracy", "macro_F1"] = "loss"  # of validation: what is best
    patience: int | None = None  # stop after this many validations in a row that did not improve
    average: int = 0  # at the end, average this many checkpoints (they are kept) into `average`
    average_of: Literal["last", "best"] = "last"
    samples: int = 4  # validation examples shown with the model's answer at each validation
    tensorboard: bool = False

    def __post_init__(self) -> None:
        require_numbers(self, "training.")
        for name in ("steps", "max_tokens", "accumulate", "log_every", "validate_every", "keep_last", "keep_best"):
            require(getattr(self, name) >= 1, f"training.{name} must be at least 1, not {getattr(self, name)}")
        for name in ("checkpoint_every", "patience", "threads"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"training.{name} must be at least 1, not {value}")
        too_many = self.threads is not None and self.threads > MOST_THREADS
        require(not too_many, f"training.threads must be at most {MOST_THREADS}, not {self.threads}")
        for name in ("clip", "weight_decay", "warmup", "average", "samples", "final", "cooldown"):
            require(getattr(self, name) >= 0, f"training.{name} must not be negative, not {getattr(self, name)}")
        for name in ("epsilon", "factor", "peak"):
            value = getattr(self, name)
            require(value is None or value > 0, f"training.{name} must be above 0, not {value}")
        for name, most in (("final", 1), ("threads", MOST_THREADS)):
            value = getattr(self, name)
            require(value is None or value <= most, f"training.{name} must be at most {most}, not {value}")
        require(
            0 < self.layer_decay <= 1, f"training.layer_decay must be above 0 and at most 1, not {self.layer_decay}"
        )
        for name in ("label_smoothing", "beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"training.{name} must be at least 0 and below 1, not {value}")
        if self.schedule == "noam":
            both = self.factor is not None and self.peak is not None
            require(not both, f"training.factor = {self.factor} and training.peak = {self.peak}: give one of them")
        else:
            require(self.peak is not None, f"training.schedule = {self.schedule!r} needs training.peak")
            require(self.factor is None, f"training.factor is for the schedule 'noam', not {self.schedule!r}")
        ends = self.schedule == "cosine" and self.cooldown
        require(not ends, "training.cooldown is for the schedules 'noam' and 'constant': 'cosine' ends by itself")
        decays = self.optimizer != "adam"
        require(decays or not self.weight_decay, "training.weight_decay needs training.optimizer = 'adamw' or 'muon'")

    def oddities(self) -> list[str]:
        """What is allowed, because a short trial of a long recipe needs it, but is hardly meant in the end."""
        found, end = [], f"training.steps = {self.steps:,}"
        warmup, cooldown = f"training.warmup = {self.warmup:,}", f"training.cooldown = {self.cooldown:,}"
        if self.warmup > self.steps:
            found.append(f"{warmup} is more than {end}: the rate is still rising at the end")
        if self.cooldown > self.steps:
            found.append(f"{cooldown} is more than {end}: the rate falls from the first step on")
        elif self.cooldown and self.warmup <= self.steps < self.warmup + self.cooldown:
            found.append(f"{warmup} and {cooldown} are together more than {end}: the rate never reaches its peak")
        return found

    def validates(self, step: int) -> bool:
        """Whether a validation follows this update."""
        return step % self.validate_every == 0 or step == self.steps

    def reports(self, step: int) -> bool:
        """Whether a line of metrics follows this update."""
        return step % self.log_every == 0 or self.validates(step)


@dataclass(frozen=True)
class Recipe:
    """All five tables. `model` stays a table until the data say what kind of model and which vocabulary they need."""

    data: DataSettings
    model: dict = field(default_factory=dict)  # `preset`, and any field of ModelConfig
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)

    def model_config(
        self,
        kind: str,
        head: Mapping[str, Any],
        vocab_size: int,
        source_vocab_size: int | None = None,
        needs: Mapping[str, Any] | None = None,  # what else the data want of the model, unless the recipe says so
    ) -> "ModelConfig":
        """The model for data of this kind; what the recipe says of kind and vocabulary must agree with the data."""
        from clearhead.model import PRESETS, configure

        table = dict(self.model)
        preset = table.pop("preset", None)
        require(preset is None or isinstance(preset, str), f"model.preset must be a string, not {preset!r}")
        given = {**{key: value for key, value in PRESETS.get(preset, {}).items() if key == "kind"}, **table}
        require(
            given.get("kind", kind) == kind,
            f"the recipe's model is of kind {given.get('kind')!r}, but its data are for one of kind {kind!r}",
        )
        sizes = {"vocab_size": vocab_size, "source_vocab_size": source_vocab_size}
        for key, size in sizes.items():
            found = convert(int | None, table.get(key, size), f"model.{key}")
            what = "the tokenizer has" if key == "vocab_size" else "the source's own tokenizer has"
            fits = found == size if size is None else found is not None and found >= size
            require(fits, f"model.{key} = {found}, but {what} {'no' if size is None else size} tokens")
        changes = merge({**sizes, **(needs or {}), "head": dict(head)}, {**table, "kind": kind})
        try:
            return configure(preset, **changes)
        except InputError as error:
            raise InputError(f"model: {error}") from None

    def check_model(self) -> None:
        """Refuse what is wrong with the table `model` whatever the vocabulary, before hours go into tokenising."""
        kind, head = self.data.model_kind()
        own = self.model.get("source_vocab_size", 1) if self.tokenizer.apart else self.model.get("source_vocab_size")
        size = self.model.get("vocab_size", 1)
        self.model_config(kind, head, size if type(size) is int else 1, own if type(own) is int else None)

    def to_dict(self) -> dict[str, Any]:
        return {**to_dict(self), "model": dict(self.model)}


def find_recipe(name: str) -> Path:
    """A path as it is, or the packaged recipe of that name."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    known = sorted(recipe.stem for recipe in RECIPES.glob("*.toml"))
    if name not in known:
        if (path / CONFIG).is_file():  # a run goes on by its own settings
            return path / CONFIG
        if path.is_dir():
            raise InputError(f"{path} is a folder without a {CONFIG}: no recipe and no run")
        raise InputError(f"no recipe {name!r}{nearest(name, known)} (or give the path of a .toml file)")
    return RECIPES / f"{name}.toml"


def load_recipe(name: str, changes: Iterable[str] = ()) -> Recipe:
    """Read a recipe and lay `a.b=value` changes over it."""
    path = find_recipe(name)
    tables = read_toml(path)
    for change in changes:
        tables = merge(tables, with_paths_from_here(parse_assignment(change)))
    try:
        recipe = from_dict(Recipe, tables)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    tokenizer = anchored(recipe.tokenizer, TOKENIZER_PATHS, path.parent)
    return replace(recipe, data=anchor(recipe.data, path.parent), tokenizer=tokenizer)


def with_paths_from_here(change: dict[str, Any]) -> dict[str, Any]:
    """A path on the command line is seen from where the user stands, not from where the recipe lies."""
    paths = {"data": FILE_KEYS, "tokenizer": TOKENIZER_PATHS}
    ((name, table),) = change.items()
    if name not in paths or not isinstance(table, Mapping):
        return change
    return {name: {key: from_here(value) if key in paths[name] else value for key, value in table.items()}}


def from_here(value: Any) -> Any:
    if isinstance(value, list):
        return [from_here(path) for path in value]
    return value if not isinstance(value, str) or value.startswith(("~", "$")) else str(Path.cwd() / value)


def with_defaults(path: Path) -> dict[str, Any]:
    """The settings of a run, with the keys that did not exist when it was begun at the values they stood for."""
    from clearhead.model import ModelConfig

    old = read_toml(path)
    kinds = {"model": ModelConfig, "data": DataSettings, "tokenizer": TokenizerSettings, "training": TrainingSettings}
    try:
        tables = {name: to_dict(from_dict(kind, old[name], f"{name}.")) for name, kind in kinds.items() if name in old}
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return {**old, **tables}
