"""A described model on the examination table: it is built, run and compared here, the same way for every probe.

Every model a probe sees is one the doctor had built for itself (or a copy), in float64 where the code allows it,
with its weights shaken: a projection that starts at zero would hide whatever happens behind it.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor import sizes as sizes_
from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.doctor.finding import NotArmed
from clearhead.doctor.watch import Nudge, Watch
from clearhead.errors import InputError

# relative to the spread of the outputs; where the code casts down, the lowest precision it uses decides
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.1}
# rounding larger than this, relative to the spread, is no rounding
BELIEVABLE = {1e-9: 1e-10, 1e-4: 1e-4, 0.1: 1.0}
BATCH, LENGTH, TARGET_LENGTH = 3, 11, 7


@dataclass(frozen=True)
class View:
    """One token input of a model and the outputs that answer to it; the other inputs are held still."""

    name: str  # "tokens", "target" or "source"
    causal: bool
    aligned: bool  # output i belongs to input i
    padded: bool  # a padding mask can be given
    call: Callable[..., Any]  # call(forward, model, tokens, real)

    @property
    def token(self) -> str:
        return "token" if self.name == "tokens" else f"{self.name} token"


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite where only one of the two is a number."""
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    difference = (a.double() - b.double()).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(difference.masked_fill(same, 0.0).nan_to_num(nan=float("inf")).max())


def outputs(result: Any) -> Tensor:
    """The tensor in whatever a forward returns."""
    if isinstance(result, dict) and "logits" in result:
        result = result["logits"]
    for name in ("logits", "last_hidden_state"):
        if not isinstance(result, Tensor) and isinstance(getattr(result, name, None), Tensor):
            result = getattr(result, name)
    if isinstance(result, tuple | list) and result:
        result = result[0]
    if not isinstance(result, Tensor):
        raise InputError(f"forward returned {type(result).__name__}, not a tensor of outputs or something that has one")
    return result


def parameters_of(function: Callable[..., Any]) -> int:
    """How many arguments can be given by position."""
    try:
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 0
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 99
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def shake(model: nn.Module, seed: int = 7) -> nn.Module:
    """Add noise of ordinary size to every parameter, so that none is zero and attention prefers some tokens."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                size = parameter.size(-1) ** -0.5 if parameter.dim() > 1 else 0.1
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size
                parameter.add_(noise.to(parameter.dtype))
    return model


class Subject:
    """Builds, runs and compares one described model."""

    def __init__(self, spec: Description) -> None:
        self.spec = spec
        self.models: dict[Any, nn.Module] = {}
        self.tolerances: dict[str, float] = {}
        self.noises: dict[str, float] = {}
        self.names = sizes_.taken(spec.build)
        self.fixed = False
        self.dtype = spec.dtype or torch.float64
        self.sizes = self.choose_sizes()
        self.vocab = self.find_vocab()
        self.views = self.make_views()
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
        return copy.deepcopy(model) if self.fixed else model

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
        """A model as the builder initialises it, in evaluation mode."""
        missing = [name for name in overrides if name not in self.names]
        if missing:
            raise NotArmed(f"build takes no {' or '.join(missing)}")
        try:
            model = self.construct(seed, {**self.sizes, **overrides})
        except InputError as error:
            raise NotArmed(str(error)) from error
        return model.to(dtype or self.dtype).eval()

    def model(self, seed: int = 0, **overrides: Any) -> nn.Module:
        """A shaken model in evaluation mode; the same one every time, so leave it as you found it."""
        key = (seed, tuple(sorted(overrides.items())))
        if key not in self.models:
            self.models[key] = shake(self.raw(seed, **overrides))
        return self.models[key].eval()

    def fresh(self, seed: int = 0, **overrides: Any) -> nn.Module:
        """A shaken model of your own."""
        return shake(self.raw(seed, **overrides))

    def without_dropout(self, seed: int = 0, shaken: bool = True) -> nn.Module:
        """A model whose training mode is deterministic."""
        overrides: dict[str, Any] = {"dropout": 0.0} if "dropout" in self.names else {}
        model = self.raw(seed, **overrides)
        for module in model.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
        return shake(model) if shaken else model

    # -- running

    def make_views(self) -> list[View]:
        spec, count = self.spec, parameters_of(self.spec.forward)
        if isinstance(spec, EncoderDecoder):
            source, target = self.tokens(1, 9, seed=90), self.tokens(1, TARGET_LENGTH, seed=91)

            def to_target(forward: Any, model: nn.Module, tokens: Tensor, real: Tensor | None) -> Any:
                fixed = source.expand(tokens.size(0), -1)
                extra = () if real is None else (torch.ones_like(fixed, dtype=torch.bool), real)
                return forward(model, fixed, tokens, *extra)

            def to_source(forward: Any, model: nn.Module, tokens: Tensor, real: Tensor | None) -> Any:
                fixed = target.expand(tokens.size(0), -1)
                return forward(model, tokens, fixed) if real is None else forward(model, tokens, fixed, real)

            return [
                View("target", True, True, count >= 5, to_target),
                View("source", False, False, count >= 4, to_source),
            ]

        def to_tokens(forward: Any, model: nn.Module, tokens: Tensor, real: Tensor | None) -> Any:
            return forward(model, tokens) if real is None else forward(model, tokens, real)

        return [View("tokens", isinstance(spec, CausalLM), True, count >= 3, to_tokens)]

    def run(self, view: View, model: nn.Module, tokens: Tensor, real: Tensor | None = None, path: str = "") -> Tensor:
        """The outputs of a pass; the tokens must come back as they went in."""
        forward = self.spec.paths[path] if path else self.spec.forward
        before = tokens.clone()
        result = outputs(view.call(forward, model, tokens, real))
        if not torch.equal(tokens, before):
            raise InputError("forward changed its input tokens in place")
        wanted = tuple(tokens.shape) if view.aligned else (tokens.size(0), TARGET_LENGTH)
        if result.dim() != 3 or tuple(result.shape[:2]) != wanted:
            raise InputError(
                f"forward returned shape {tuple(result.shape)} for {view.name} of shape {tuple(tokens.shape)}; "
                f"wanted ({wanted[0]}, {wanted[1]}, ...)"
            )
        if not isinstance(self.spec, Encoder) and result.size(-1) < self.vocab:
            raise InputError(
                f"forward returned shape {tuple(result.shape)}: {result.size(-1)} logits, wanted one for each of "
                f"{self.vocab} tokens"
            )
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
            return outputs(self.spec.forward(model, *inputs))

    def choose_dtype(self) -> None:
        """float64, unless the code insists on another: then what it insists on."""
        view, tokens = self.views[0], self.tokens()
        options = [self.dtype] if self.spec.dtype else [torch.float64, torch.float32]
        for number, option in enumerate(options):
            self.dtype = option
            try:
                self.quiet(view, self.raw(), tokens)
                return
            except InputError:
                raise
            except Exception as error:
                if number == len(options) - 1:
                    shape = tuple(tokens.shape)
                    raise InputError(
                        f"forward(model, tokens) raised {type(error).__name__} for tokens of shape {shape}: {error}"
                    ) from error

    def tokens(self, batch: int = BATCH, length: int = LENGTH, seed: int = 1) -> Tensor:
        """Random tokens; the first three ids are left out, since models treat padding and the like apart."""
        generator = torch.Generator().manual_seed(seed)
        low = 3 if self.vocab > 8 else 0
        tokens = torch.randint(low, self.vocab, (batch, length), generator=generator)
        if self.spec.pad is not None:
            other = low if self.spec.pad != low else low + 1
            tokens = tokens.masked_fill(tokens == self.spec.pad, other)
        return tokens

    def other(self, tokens: Tensor) -> Tensor:
        """Different tokens in every place."""
        low = 3 if self.vocab > 8 else 0
        moved = low + (tokens - low + 1) % (self.vocab - low)
        if self.spec.pad is not None:
            moved = torch.where(moved == self.spec.pad, low + (moved - low + 1) % (self.vocab - low), moved)
        return moved

    # -- comparing

    def spread(self, view: View) -> float:
        """The standard deviation of the outputs: what a difference is measured against."""
        return float(self.quiet(view, self.model(), self.tokens()).double().std()) or 1.0

    def noise(self, view: View) -> float:
        """How far rounding alone moves an output: a row alone against the same row in company."""
        if view.name not in self.noises:
            model, tokens = self.model(), self.tokens(5, LENGTH)
            together = self.quiet(view, model, tokens)
            turned = self.quiet(view, model, tokens.flip(0)).flip(0)
            alone = self.quiet(view, model, tokens[:1])
            self.noises[view.name] = max(gap(together, turned), gap(together[:1], alone))
        return self.noises[view.name]

    def tolerance(self, view: View) -> float:
        """A difference up to this is rounding."""
        if view.name not in self.tolerances:
            with Watch() as watch:
                self.quiet(view, self.model(), self.tokens())
            lowest = max(TOLERANCE.get(dtype, 1e-9) for dtype in {*watch.seen.dtypes, self.dtype})
            if lowest > 0.05 and self.dtype in (torch.float64, torch.float32) and self.smooth(view):
                lowest = TOLERANCE[torch.float32]  # something is kept in 16 bits, but not what tokens become
            spread, noise = self.spread(view), self.noise(view)
            # a model whose rows really influence each other has no noise floor; the batch probe says so
            floor = 50 * noise if noise < BELIEVABLE[lowest] * spread else 0.0
            self.tolerances[view.name] = max(lowest * spread, floor)
        return self.tolerances[view.name]

    @cached_property
    def repeatable(self) -> bool:
        """Does evaluation mode give the same outputs whatever the random state?"""
        out = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            out.append(self.whole(self.model(), self.inputs(2, 7)))
        return gap(out[0], out[1]) <= 1e-4 * (float(out[0].double().std()) or 1.0)

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
