"""The machine that a figure was measured on, and the memory that this process holds of it."""

import ctypes
import gc
import os
import platform
from pathlib import Path


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
