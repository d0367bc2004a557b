"""More than one process: who we are among the ranks, and the few things ranks do together.

`torchrun` starts the processes and names them in the environment; torch.distributed does the talking (gloo between
CPUs, nccl between GPUs). DDP keeps a copy of the model in each process and averages the gradients; FSDP2 shards
parameters, gradients and optimizer state, so that a model need not fit into one. Alone, all of it is the identity.

A process that dies leaves the others waiting in a collective: the connection to it breaks, gloo raises, and the
survivors end with an error, which torchrun turns into a restart if it was asked for restarts.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from clearhead.machine import native_bfloat16, pick_device

PATIENCE = timedelta(minutes=10)  # a collective that takes longer will never end
LONG = timedelta(days=30)  # for work that only the first rank does

# The group this process has joined, kept until it joins another. DDP would else be the last to hold it, and let go of
# it with the interpreter locked; the group's destructor waits for its threads, and one of them may wait for that lock
# to let go of a tensor: after a broken connection, a survivor would hang there instead of ending with the error.
JOINED: list[Any] = []


class Ranks:
    """The group of processes of one training; one process alone is a group, too."""

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.count = rank, count
        self.device = device or torch.device("cpu")
        self.parallel: Literal["ddp", "fsdp"] = "ddp"
        self.store: dist.Store | None = None  # what all ranks can write to and read, if there are several

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and talks to the user."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all ranks, in float64."""
        if self.count == 1:
            return list(values)
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        total = torch.tensor(values, dtype=kind, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def wait(self) -> None:
        """Until the first rank calls `go_on`, for as long as that takes: a collective would give up."""
        if self.store is not None:
            self.store.wait(["go on"], LONG)

    def go_on(self) -> None:
        if self.store is not None:
            self.store.set("go on", "")

    def barrier(self) -> None:
        if self.count > 1:
            dist.barrier()

    def wrap(self, objective: nn.Module, layers: list[nn.Module]) -> nn.Module:
        """The objective with its gradients shared: averaged over ranks at the end of each backward pass."""
        if self.count == 1:
            return objective
        if self.parallel == "ddp":
            return nn.parallel.DistributedDataParallel(objective)
        from torch.distributed.fsdp import fully_shard

        for layer in layers:  # each layer is gathered just before it runs and let go after
            fully_shard(layer)
        fully_shard(objective)
        return objective

    @contextmanager
    def accumulating(self, objective: nn.Module, last: bool) -> Iterator[None]:
        """Only the last micro-batch of an update sends gradients around."""
        if self.count == 1:
            yield
        elif isinstance(objective, nn.parallel.DistributedDataParallel):
            if last:
                yield
            else:
                with objective.no_sync():
                    yield
        else:
            objective.set_requires_gradient_sync(last)  # type: ignore[operator]
            yield


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a shard, on every rank; all ranks must ask. What is not sharded is returned as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shard_like(full: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a full tensor that every rank has, laid out as `like` is. Nothing is sent around, so ranks
    need not ask in the same order, and the order in which a file is read differs between processes."""
    if not hasattr(like, "device_mesh"):
        return full.to(device=like.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full.to(like.device), like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


def divided(work: Callable[[Tensor], Tensor], items: Tensor) -> Tensor:
    """`work(items)`, row by row, where every rank has all items: each does its part of the rows and sends it around."""
    count = dist.get_world_size() if dist.is_initialized() else 1
    if count == 1:
        return work(items)
    each = -(-len(items) // count)
    padded = torch.cat([items, items.new_zeros(each * count - len(items), *items.shape[1:])])
    mine = work(padded[each * dist.get_rank() :][:each]).contiguous()
    parts = [torch.empty_like(mine) for _ in range(count)]
    dist.all_gather(parts, mine)
    return torch.cat(parts)[: len(items)]


def pick_precision(wanted: str, device: torch.device) -> str:
    """`auto` is bfloat16 where it is fast: without instructions of its own it is emulated, slower than float32."""
    if wanted != "auto":
        return wanted
    native = {"cuda": torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)}
    native["cpu"] = native_bfloat16()
    return "bfloat16" if native.get(device.type) else "float32"


@contextmanager
def gathered(device: str = "auto", parallel: Literal["ddp", "fsdp"] = "ddp") -> Iterator[Ranks]:
    """Join the group that torchrun describes in the environment; without one, be a group of one."""
    chosen = pick_device(device)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(device=chosen)
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    # torchrun keeps one store through all its restarts, so each attempt gets keys of its own: under the keys of the
    # last one, a worker would read the address of a process that is dead.
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    JOINED[:] = [dist.group.WORLD]
    ranks = Ranks(dist.get_rank(), count, chosen)
    ranks.parallel, ranks.store = parallel, store
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def broadcast(value: Any, ranks: Ranks) -> Any:
    """The first rank's value, on every rank; for small plain objects."""
    if ranks.count == 1:
        return value
    box = [value if ranks.first else None]
    dist.broadcast_object_list(box)
    return box[0]
