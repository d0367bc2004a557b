"""What machines can do, as their makers say: memory, matrix products a second, bytes a second to the next device.

Peaks are those of dense matrices; the link is one direction, half of what data sheets add up. A device that is not
listed is described on the command line, and a measured one is worth more than either.
"""

from dataclasses import dataclass

GB = 10**9
TERA = 10**12


@dataclass(frozen=True)
class Device:
    """One device and the link to its neighbours."""

    name: str
    memory: float  # bytes
    float32: float  # FLOPs a second
    bits16: float  # FLOPs a second in bfloat16, or float16 where there is no bfloat16
    link: float  # bytes a second, one direction
    source: str


DEVICES = {
    device.name: device
    for device in (
        Device("H100", 80 * GB, 67 * TERA, 989 * TERA, 450 * GB, "NVIDIA H100 data sheet, SXM5, without sparsity"),
        Device("A100", 80 * GB, 19.5 * TERA, 312 * TERA, 300 * GB, "NVIDIA A100 data sheet, SXM4 80 GB"),
        Device("A100-40", 40 * GB, 19.5 * TERA, 312 * TERA, 300 * GB, "NVIDIA A100 data sheet, SXM4 40 GB"),
        Device("V100", 16 * GB, 15.7 * TERA, 125 * TERA, 150 * GB, "NVIDIA V100 data sheet, SXM2; float16"),
        Device("P100", 16 * GB, 10.6 * TERA, 21.2 * TERA, 80 * GB, "NVIDIA P100 data sheet, SXM2; float16"),
        Device("T4", 16 * GB, 8.1 * TERA, 65 * TERA, 16 * GB, "NVIDIA T4 data sheet; float16, PCIe 3"),
        Device("RTX4090", 24 * GB, 82.6 * TERA, 165 * TERA, 32 * GB, "NVIDIA Ada white paper; float32 sums, PCIe 4"),
    )
}
