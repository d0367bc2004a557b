"""A described model on the examination table: it is built, run and compared here, the same way for every probe.

Every model a probe sees is one the doctor had built for itself (or a copy), in float64 where the code allows it,
with its weights shaken: a projection that starts at zero would hide whatever happens behind it.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from clearhead.doctor import sizes as sizes_
from clearhead.doctor.contradictions import require_consistent
from clearhead.doctor.describe import Description, Encoder, EncoderDecoder
from clearhead.doctor.finding import NotArmed
from clearhead.doctor.raised import Misshapen, Raised
from clearhead.doctor.results import deviation
from clearhead.doctor.results import gap as gap
from clearhead.doctor.results import outputs as outputs
from clearhead.doctor.views import TARGET_LENGTH, make_views
from clearhead.doctor.views import View as View
from clearhead.doctor.views import parameters_of as parameters_of
from clearhead.doctor.watch import Nudge, Still, Watch
from clearhead.errors import InputError

# relative to the spread of the outputs; where the code casts down, the lowest precision it uses decides
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.1}
# rounding larger than this, relative to the spread, is no rounding
BELIEVABLE = {1e-9: 1e-10, 1e-4: 1e-4, 0.1: 1.0}
BATCH, LENGTH = 3, 11


def shake(model: nn.Module, seed: int = 7) -> nn.Module:
    """Add noise of ordinary size to every parameter, so that none is zero and attention prefers some tokens.

    The row of an embedding that stands for padding stays as it was built: a model may count on it being zero.
    """
    generator = torch.Generator().manual_seed(seed)
    padding = {id(m.weight): m.padding_idx for m in model.modules() if isinstance(m, nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                size = parameter.size(-1) ** -0.5 if parameter.dim() > 1 else 0.1
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size
                if padding.get(id(parameter)) is not None:
                    noise[padding[id(parameter)]] = 0.0
                parameter.add_(noise.to(parameter.dtype))
    return model


class Subject:
    """Builds, runs and compares one described model."""

    def __init__(self, spec: Description) -> None:
        self.spec = spec
        self.models: dict[Any, nn.Module] = {}
        self.tolerances: dict[tuple[str, bool], float] = {}  # of a view, with dropout silenced or not
        self.noises: dict[tuple[str, bool], float] = {}
        self.names = sizes_.taken(spec.build)
        self.fixed = False
        self.still: WeakSet[nn.Module] = WeakSet()  # models that run without dropout
        self.silenced = False  # does every model?
        self.stacks: set[str] | None = None  # parameters with a row for each layer, once somebody asked
        self.worked: set[str] = set()  # what was called and returned
        self.shaped: set[str] = set()  # forwards whose outputs had the right shape
        # the padding of the source, and that of the target or of the only tokens there are
        self.source_pad, self.pad = spec.pad if isinstance(spec.pad, tuple) else (spec.pad, spec.pad)
        self.prefix = int(getattr(spec, "prefix", 0))  # the first tokens that see each other both ways
        self.dtype = spec.dtype or torch.float64
        self.sizes = self.choose_sizes()
        self.vocab = self.find_vocab()
        require_consistent(spec, self.vocab)
        self.views = make_views(self)
        self.choose_dtype()

    # -- building

    def construct(self, seed: int, sizes: dict[str, Any]) -> nn.Module:
        torch.manual_seed(seed)
        given = sizes_.arguments(self.spec.build, sizes)
        try:
            model = self.spec.build(**given)
        except InputError:
            raise
        except Exception as error:
            arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise InputError(f"build({arguments}) raised {type(error).__name__}: {error}") from error
        if not isinstance(model, nn.Module):
            raise InputError(f"build() returned {type(model).__name__}, wanted an nn.Module")
        try:
            return copy.deepcopy(model) if self.fixed else model
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"build gives the same model every time, and it cannot be copied: {reason}") from error

    def choose_sizes(self) -> dict[str, Any]:
        problem: InputError | None = None
        for option in sizes_.candidates(self.spec.build, self.spec.sizes):
            try:
                first, second = self.construct(0, option), self.construct(1, option)
            except InputError as error:
                problem = problem or error
                continue
            ours = {p.data_ptr() for p in first.parameters() if p.numel()}
            self.fixed = any(p.data_ptr() in ours for p in second.parameters() if p.numel())
            return option
        raise problem or InputError("build could not be called")

    def find_vocab(self) -> int:
        if "vocab" in self.sizes:
            return int(self.sizes["vocab"])
        tables = [m.num_embeddings for m in self.construct(0, self.sizes).modules() if isinstance(m, nn.Embedding)]
        if not tables:
            raise InputError("cannot tell the vocabulary: let build take `vocab`, or give sizes={'vocab': ...}")
        return tables[0]

    def raw(self, seed: int = 0, dtype: torch.dtype | None = None, **overrides: Any) -> nn.Module:
        """A model as the builder initialises it, in evaluation mode; nothing of it is changed, dropout included."""
        missing = [name for name in overrides if name not in self.names]
        if missing:
            raise NotArmed(f"build takes no {' or '.join(missing)}")
        try:
            model = self.construct(seed, {**self.sizes, **overrides})
            model = model.to(dtype or self.dtype).eval()
            if set(overrides) - {"dropout"}:
                self.quiet(self.views[0], model, self.tokens())
        except (InputError, Raised) as error:
            if not overrides:
                raise
            raise NotArmed(f"with other sizes: {error}") from error
        return model

    def model(self, seed: int = 0, **overrides: Any) -> nn.Module:
        """A shaken model in evaluation mode; the same one every time, so leave it as you found it."""
        key = (seed, tuple(sorted(overrides.items())))
        if key not in self.models:
            self.models[key] = shake(self.raw(seed, **overrides))
        return self.models[key].eval()

    def cool(self, **overrides: Any) -> nn.Module:
        """A shaken model with small matrices: attention is nearly even, so that every token it may see has a say."""
        key = ("cool", tuple(sorted(overrides.items())))
        if key not in self.models:
            self.models[key] = self.fresh(**overrides)
            with torch.no_grad():
                for parameter in self.models[key].parameters():
                    if parameter.dim() > 1 and parameter.is_floating_point():
                        parameter.mul_(0.25)
        return self.models[key].eval()

    def fresh(self, seed: int = 0, **overrides: Any) -> nn.Module:
        """A shaken model of your own."""
        return shake(self.raw(seed, **overrides))

    def without_dropout(self, seed: int = 0, shaken: bool = True, dtype: torch.dtype | None = None) -> nn.Module:
        """A model that runs without dropout, whatever its code says; its own settings stay as they were built."""
        overrides: dict[str, Any] = {"dropout": 0.0} if "dropout" in self.names else {}
        model = self.raw(seed, dtype, **overrides)
        self.still.add(model)
        return shake(model) if shaken else model

    # -- running

    def call(self, what: str, function: Callable[..., Any], model: nn.Module | None, *given: Any) -> Any:
        """Call a function of the description; whatever it raises comes out as `Raised`.

        Token tensors are handed over contiguous: a model may take that for granted.
        """
        given = tuple(x.contiguous() if isinstance(x, Tensor) else x for x in given)
        context: AbstractContextManager[Any] = Still() if self.silenced or model in self.still else nullcontext()
        try:
            with context:
                result = function(model, *given)
        except (InputError, NotArmed):
            raise
        except Exception as error:
            raise Raised(what, error, given) from error
        self.worked.add(what)
        return result

    def loss(self, model: nn.Module, batch: tuple[Any, ...]) -> Tensor:
        """The described loss of a batch, one number."""
        result = self.call("loss", self.spec.loss, model, *batch)  # type: ignore[arg-type]
        result = getattr(result, "loss", result)
        result = result[0] if isinstance(result, tuple | list) and result else result
        if not isinstance(result, Tensor) or result.numel() != 1:
            found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise InputError(f"loss returned {found}, wanted one number")
        return result.reshape(())

    def run(self, view: View, model: nn.Module, tokens: Tensor, real: Tensor | None = None, path: str = "") -> Tensor:
        """The outputs of a pass; the tokens must come back as they went in."""
        forward = self.spec.paths[path] if path else self.spec.forward
        name = (f"paths[{path!r}]" if path else "forward") + ("" if real is None else " with a padding mask")
        tokens = tokens.contiguous()
        before = tokens.clone()
        result = outputs(view.call(lambda *given: self.call(name, forward, model, *given), tokens, real))
        if not torch.equal(tokens, before):
            raise InputError("forward changed its input tokens in place")
        wanted = tuple(tokens.shape) if view.aligned else (tokens.size(0), TARGET_LENGTH)
        if result.dim() != 3 or tuple(result.shape[:2]) != wanted:
            told = f"returned shape {tuple(result.shape)} for {view.name} of shape {tuple(tokens.shape)}"
            told += f"; wanted ({wanted[0]}, {wanted[1]}, ...)"
            raise Raised(name, Misshapen(told)) if name in self.shaped else InputError(f"{name} {told}")
        if not isinstance(self.spec, Encoder) and result.size(-1) < self.vocab:
            raise InputError(
                f"forward returned shape {tuple(result.shape)}: {result.size(-1)} logits, wanted one for each of "
                f"{self.vocab} tokens"
            )
        self.shaped.add(name)
        return result

    def quiet(self, view: View, model: nn.Module, tokens: Tensor, real: Tensor | None = None, path: str = "") -> Tensor:
        """A pass without gradients."""
        with torch.no_grad():
            return self.run(view, model, tokens, real, path)

    def inputs(self, batch: int, length: int, seed: int = 1) -> tuple[Tensor, ...]:
        """Everything a forward takes, different in every row."""
        if isinstance(self.spec, EncoderDecoder):
            return self.tokens(batch, length + 2, seed), self.tokens(batch, length, seed + 50)
        return (self.tokens(batch, length, seed),)

    def whole(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """The outputs for all inputs, without gradients."""
        with torch.no_grad():
            return self.forward(model, inputs)

    def forward(self, model: nn.Module, inputs: tuple[Any, ...]) -> Tensor:
        """The outputs for all inputs (and masks, where they are given)."""
        masked = any(isinstance(x, Tensor) and x.dtype == torch.bool for x in inputs)
        return outputs(
            self.call("forward with a padding mask" if masked else "forward", self.spec.forward, model, *inputs)
        )

    def choose_dtype(self) -> None:
        """float64, unless the code insists on another: then what it insists on."""
        options = [self.dtype] if self.spec.dtype else [torch.float64, torch.float32]
        for number, option in enumerate(options):
            self.dtype = option
            try:
                seen = [
                    self.quiet(view, model, self.tokens())
                    for view in self.views
                    for model in (self.raw(), self.fresh())
                ]
                # masks made of the largest numbers of a precision may overflow in it alone; elsewhere nothing is hidden
                if number == len(options) - 1 or all(bool(out.isfinite().all()) for out in seen):
                    return
            except Raised as error:
                if number == len(options) - 1:
                    takes = "source, target" if isinstance(self.spec, EncoderDecoder) else "tokens"
                    told = error.told().replace("forward", f"forward(model, {takes})", 1)
                    raise InputError(f"{told}; at {error.where or 'a line that is not in Python'}") from error

    @cached_property
    def narrowed(self) -> "Subject":
        """The same in float32: what fails in float64 alone is no fault of the model."""
        return Subject(replace(self.spec, dtype=torch.float32))

    def tokens(self, batch: int = BATCH, length: int = LENGTH, seed: int = 1) -> Tensor:
        """Random tokens; the first three ids are left out, since models treat padding and the like apart."""
        generator = torch.Generator().manual_seed(seed)
        low = 3 if self.vocab > 8 else 0
        tokens = torch.randint(low, self.vocab, (batch, length), generator=generator)
        pads = self.pads()
        other = next(token for token in range(low, self.vocab) if token not in pads)
        return tokens.masked_fill(torch.isin(tokens, pads), other)

    def other(self, tokens: Tensor) -> Tensor:
        """Different tokens in every place."""
        low = 3 if self.vocab > 8 else 0
        moved = low + (tokens - low + 1) % (self.vocab - low)
        for _ in self.pads():  # there may be two kinds of padding side by side
            moved = torch.where(torch.isin(moved, self.pads()), low + (moved - low + 1) % (self.vocab - low), moved)
        return moved

    def pads(self) -> Tensor:
        """The tokens that mean padding."""
        return torch.tensor([pad for pad in (self.source_pad, self.pad) if pad is not None], dtype=torch.long)

    # -- comparing

    def spread(self, view: View) -> float:
        """The standard deviation of the outputs: what a difference is measured against."""
        return deviation(self.quiet(view, self.model(), self.tokens()))

    def noise(self, view: View) -> float:
        """How far rounding alone moves an output: a row alone against the same row in company."""
        key = (view.name, self.silenced)
        if key not in self.noises:
            model, tokens = self.model(), self.tokens(5, LENGTH)
            together = self.quiet(view, model, tokens)
            turned = self.quiet(view, model, tokens.flip(0)).flip(0)
            alone = self.quiet(view, model, tokens[:1])
            self.noises[key] = max(gap(together, turned), gap(together[:1], alone))
        return self.noises[key]

    def tolerance(self, view: View) -> float:
        """A difference up to this is rounding."""
        key = (view.name, self.silenced)
        if key not in self.tolerances:
            with Watch() as watch:
                self.quiet(view, self.model(), self.tokens())
            lowest = max(TOLERANCE.get(dtype, 1e-9) for dtype in {*watch.seen.dtypes, self.dtype})
            if lowest > 0.05 and self.dtype in (torch.float64, torch.float32) and self.smooth(view):
                lowest = TOLERANCE[torch.float32]  # something is kept in 16 bits, but not what tokens become
            spread, noise = self.spread(view), self.noise(view)
            # a model whose rows really influence each other has no noise floor; the batch probe says so
            floor = 50 * noise if noise < BELIEVABLE[lowest] * spread else 0.0
            self.tolerances[key] = max(lowest * spread, floor)
        return self.tolerances[key]

    @cached_property
    def repeatable(self) -> bool:
        return self.repeats()

    def repeats(self) -> bool:
        """Does evaluation mode give the same outputs whatever the random state?"""
        out, view = [], self.views[0]
        for seed in (0, 1):
            torch.manual_seed(seed)
            try:
                out.append(self.quiet(view, self.model(), self.tokens()))
            except Raised:
                return True  # it worked before: the mode probe says that it does so no longer
        return gap(out[0], out[1]) <= 1e-4 * deviation(out[0])

    def silence(self) -> bool:
        """Run everything without dropout from here on, if that makes evaluation repeatable."""
        self.silenced = True
        self.silenced = self.repeats()
        return self.silenced

    def smooth(self, view: View) -> bool:
        """Do tiny changes of the embeddings move the outputs in proportion? Through 16 bits they come in steps."""
        model, tokens = self.model(), self.tokens()
        out = []
        for size in (0.0, 1e-4, 2e-4):
            with torch.no_grad(), Nudge(tokens, size) as nudge:
                out.append(self.run(view, model, tokens))
        once, twice = gap(out[0], out[1]), gap(out[0], out[2])
        return nudge.zero is not None and 1.6 * once < twice < 2.4 * once

    def exact(self) -> bool:
        """Can equality be asked for at all? In 16 bits it cannot."""
        return max(self.tolerance(view) / self.spread(view) for view in self.views) < 0.05

    def require_exact(self) -> None:
        """For probes that compare outputs: they have no say where equality cannot be asked for."""
        if not self.exact():
            raise NotArmed("equality cannot be asked for in 16 bits")
