"""The machine: which device computes, what a figure was measured on, and the memory that this process holds of it."""

import ctypes
import gc
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import InputError

if TYPE_CHECKING:
    import torch


def pick_device(wanted: str) -> "torch.device":
    """`auto` is the fastest there is; anything else (`cpu`, `mps`, `cuda`, `cuda:1`) must be there."""
    import torch

    here = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    here += ["mps"] if torch.backends.mps.is_available() else []
    here += ["cpu"]
    kinds = [name.partition(":")[0] for name in here]
    if wanted == "auto":
        return torch.device(kinds[0])
    if wanted in here or wanted in kinds:
        return torch.device(wanted)
    unbuilt = wanted.startswith("cuda") and not torch.backends.cuda.is_built()
    why = ", and this PyTorch was built without CUDA" if unbuilt else ""
    raise InputError(
        f"no device {wanted!r}: this machine has {', '.join(here)}{why}; name one of these, or auto for the fastest"
    )


def machine() -> str:
    """The machine in one line, to stand beside every figure."""
    import torch

    model, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    native = "in hardware" if native_bfloat16() else "emulated"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{model}, {os.cpu_count()} cores, bfloat16 {native}, {platform.system()}, {versions}"


def native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 itself; emulated, it is far slower than float32."""
    import torch

    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))


def resident(peak: bool = False) -> int:
    """Bytes of this process in memory, now or at most since `forget_peak` (Linux)."""
    with open("/proc/self/status") as status:
        found = next(line for line in status if line.startswith("VmHWM:" if peak else "VmRSS:"))
    return int(found.split()[1]) * 1024


def forget_peak() -> None:
    """Let the peak start again from here (Linux with glibc)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system, else it is held from the start
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
