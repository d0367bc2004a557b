"""torch.compile where it can work, and plain PyTorch, with the reason, where it cannot.

On a CPU the compiler writes C++ and needs a compiler for it; without one the failure comes late and is long. So a small
function is compiled first. Only the stack of layers is compiled, for any batch shape; the loss has its own fused form.
"""

import torch

from clearhead.training.loop import Loop
from clearhead.training.report import Log


def compile_hidden(loop: Loop, log: Log) -> None:
    """Compile the model's forward pass in place, or say why not."""
    reason = cannot_compile(loop.ranks.device)
    if reason:
        log(f"training.compile = true, but torch.compile does not work here ({reason}); training without it")
        return
    loop.objective.hidden = torch.compile(loop.model.hidden, dynamic=True)


def cannot_compile(device: torch.device) -> str:
    """Why torch.compile fails on this machine; empty if it works."""
    try:
        torch.compile(lambda x: torch.relu(x) * 2 + 1)(torch.zeros(17, device=device))
    except Exception as error:  # every failure in there has a class of its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return ""
