"""What a training would take before it is begun: memory on each device, the largest batch, time, bytes sent.

* Weights, gradients and Adam's two moments are 4, 4 and 8 bytes a parameter, as our loop keeps them; 16 bits (autocast)
  add a 16-bit copy of the weights. DDP holds all of that on every device, and the buckets its gradients travel in.
  FSDP holds a share, and the whole weights and gradients of what is at work: a layer, and what is outside the layers.
* Activations are those of the account (account.py), for each sequence; in 16 bits half of them. The loss makes its
  logits in pieces, so they are not in it.
* Time is the FLOPs of the account, by the peak of the devices times a utilisation that is assumed and said.
* DDP sends every gradient twice, less a share (reduce and gather; Patarasuk and Yuan, 2009); FSDP gathers weights
  forward and backward and reduces gradients (Rajbhandari et al., 2020, section 7.2). Sent behind the backward pass, it
  costs nothing until it takes longer than computing.
"""

from dataclasses import dataclass
from typing import Literal

from clearhead.cost.account import Cost, Size, account, total
from clearhead.cost.devices import Device
from clearhead.cost.parts import Part
from clearhead.errors import InputError
from clearhead.model import ModelConfig

Parallel = Literal["ddp", "fsdp"]
UTILISATION = 0.35  # of the peak; 0.3 to 0.5 is what well-kept training loops report
PIECE = 16 << 20  # bytes of logits held at once by the loss (training/loss.py)
MOST = 1 << 20  # sequences on one device


@dataclass(frozen=True)
class Model:
    """What of a model matters to a plan; activations in float32."""

    parameters: int
    layer: int  # parameters of the largest layer
    outside: int  # parameters outside the layers
    flops: float  # of one sequence, forward and backward
    activations: float  # bytes of each sequence
    fixed: float  # bytes of activations whatever the batch: masks, positions
    length: int  # tokens of a sequence that count: of the target, where there are two


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by what they are for."""

    weights: float
    gradients: float
    optimizer: float
    buffers: float  # DDP's buckets, FSDP's gathered layers, 16-bit copies, a piece of the logits
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.buffers + self.activations


@dataclass(frozen=True)
class Plan:
    """One way to train: how many sequences go through each device at once, and what that takes."""

    parallel: Parallel
    batch: int  # sequences on each device
    memory: Memory
    steps: float
    compute_seconds: float  # of a step
    bytes_sent: float  # by each device, in a step
    send_seconds: float

    @property
    def step_seconds(self) -> float:
        return max(self.compute_seconds, self.send_seconds)

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds


def describe(config: ModelConfig, length: int, source_length: int | None = None) -> Model:
    """The account of a model, reduced to what a plan needs."""
    one, two = (account(config, Size(batch, length, source_length)) for batch in (1, 2))
    whole = total(one.values())
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    in_layers = {stack: sum(cost.parameters for part, cost in one.items() if part.stack == stack) for stack in layers}

    def kept(costs: dict[Part, Cost]) -> int:
        head = costs[Part("", "head")]
        return total(costs.values()).activation_bytes - head.activation_bytes

    return Model(
        parameters=whole.parameters,
        layer=max(in_layers[stack] // number for stack, number in layers.items() if number),
        outside=whole.parameters - sum(in_layers.values()),
        flops=whole.forward_flops + whole.backward_flops,
        activations=kept(two) - kept(one),
        fixed=2 * kept(one) - kept(two),
        length=length,
    )


def memory(model: Model, batch: int, devices: int, parallel: Parallel, bits16: bool) -> Memory:
    """Bytes on one device with `batch` sequences on it."""
    share = 1 / devices if parallel == "fsdp" else 1.0
    whole = model.parameters
    buffers = float(PIECE)
    if devices > 1 and parallel == "ddp":
        buffers += 4 * whole
    gathered = whole
    if devices > 1 and parallel == "fsdp":
        gathered = min(whole, model.outside + 2 * model.layer)  # the layer at work and the next, which is on its way
        buffers += (4 + 4) * gathered
    if bits16:
        buffers += 2 * gathered
    activations = (model.fixed + batch * model.activations) * (0.5 if bits16 else 1.0)
    return Memory(4 * whole * share, 4 * whole * share, 8 * whole * share, buffers, activations)


def largest_batch(model: Model, device: Device, devices: int, parallel: Parallel, bits16: bool) -> int:
    """How many sequences fit on each device; 0 if not even one does."""
    empty = memory(model, 0, devices, parallel, bits16).total
    one = memory(model, 1, devices, parallel, bits16).total - empty
    return max(0, min(MOST, int((device.memory - empty) / one)))


def plan(
    model: Model,
    tokens: float,
    device: Device,
    devices: int,
    parallel: Parallel,
    bits16: bool = True,
    batch: int | None = None,
    utilisation: float = UTILISATION,
) -> Plan:
    """Training on `tokens` tokens, with the largest batch that fits unless one is given."""
    if not 0 < utilisation <= 1:
        raise InputError(f"utilisation is a share of the peak, above 0 and at most 1, not {utilisation}")
    if devices < 1:
        raise InputError(f"at least one device is needed, not {devices}")
    if batch is None:
        batch = largest_batch(model, device, devices, parallel, bits16)
    peak = device.bits16 if bits16 else device.float32
    apart = (devices - 1) / devices
    sent = {"ddp": 2 * apart, "fsdp": 3 * apart}[parallel] * 4 * model.parameters
    return Plan(
        parallel,
        batch,
        memory(model, batch, devices, parallel, bits16),
        steps=tokens / (max(1, batch) * devices * model.length),
        compute_seconds=max(1, batch) * model.flops / (peak * utilisation),
        bytes_sent=sent,
        send_seconds=sent / device.link,
    )


def advice(model: Model, device: Device, devices: int, plans: list[Plan], bits16: bool) -> list[str]:
    """What to change where it does not fit, or where sending takes longer than computing."""
    said = []
    fitting = [one for one in plans if one.batch]
    if not fitting:
        states = 16 * model.parameters
        said.append(f"not even one sequence of {model.length} tokens fits into {device.memory / 1e9:.0f} GB.")
        if not bits16:
            said.append("train in 16 bits: activations are half as large.")
        needed = next((n for n in (2**k for k in range(1, 17)) if largest_batch(model, device, n, "fsdp", bits16)), 0)
        if needed:
            said.append(f"shard over {needed} devices (training.parallel = 'fsdp').")
        else:
            said.append("shorten the sequences or make the model smaller: more devices alone do not help.")
        said.append(f"weights, gradients and Adam's moments alone are {states / 1e9:.1f} GB over all devices.")
    elif len(fitting) < len(plans):
        said.append("DDP keeps a whole copy on each device and does not fit: set training.parallel = 'fsdp'.")
    for one in fitting:
        if one.send_seconds > one.compute_seconds:
            more = one.send_seconds / one.compute_seconds
            said.append(
                f"under {one.parallel.upper()} sending takes {more:.1f} times as long as computing: accumulate "
                f"{more:.0f} or more micro-batches (training.accumulate), or use fewer devices."
            )
    return said
