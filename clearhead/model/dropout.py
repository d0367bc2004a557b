"""Dropout (Srivastava et al., 2014; section 5.4): in training, zero each value with probability p and scale the rest.

The scaling by 1/(1 − p) keeps the expected value, so that nothing needs to change at inference. The random numbers are
the price: on a CPU the usual generator spends about ten nanoseconds on each, more than the arithmetic of a small
model. The fused twin cuts each 64-bit random number into four 16-bit ones, which is exact to 1/65,536 in p.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.trace import recording


def plain_dropout(x: Tensor, p: float) -> Tensor:
    """Keep each value with probability 1 − p, scaled so that the expectation stays."""
    keep = torch.rand(x.shape, device=x.device) >= p  # in float32: bfloat16 has no 0.01 among its random numbers
    return x * keep / (1 - p)


def dropout(x: Tensor, p: float, training: bool, fused: bool) -> Tensor:
    """Dropout as the model uses it: nothing in evaluation, otherwise plain or, fused, the fastest on the device."""
    return drop(x, p, fused) if training and p > 0 else x


def drop(x: Tensor, p: float, fused: bool) -> Tensor:
    """Plain, or the fastest on the device; a trace shows the plain one."""
    if not fused or recording():
        return plain_dropout(x, p)
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep_mask(x, p)


def keep_mask(x: Tensor, p: float) -> Tensor:
    """The fused twin's mask: 0 or 1/(1 − p) for each value of x, from 16 random bits each."""
    count = x.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    lanes = words.view(torch.int16)[:count].view(x.shape)  # uniform over −32768 … 32767
    dropped = min(round(p * 65_536), 65_535)
    mask = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(lanes, dropped - 32_768, out=mask)
    return mask.mul_(65_536 / (65_536 - dropped))
