"""Learning-rate schedules: the rate of update n, counted from 1, as a pure function.

Adam's first steps are large whatever the gradient is, because its averages are still empty; a warm-up keeps them
small until the averages mean something. After it, the paper (section 5.3) decays with 1/√n, later practice with half a
cosine. Update 1 already has a rate above zero: a first update that moves nothing is a batch wasted, and a schedule that
counts from 0 is the usual way to get one.

1/√n has no end in sight, which is what one wants of a run that may go on; but the weights keep moving about. A
cooldown, linear to zero over the last steps (Zhai et al., 2022), lets them settle, whenever the end is decided on.
"""

import math

from clearhead.training.config import TrainingSettings


def noam(n: int, warmup: int, peak: float) -> float:
    """Linear up to `peak` at n = warmup, then peak · √(warmup / n)."""
    return peak * min(n / warmup, math.sqrt(warmup / n))


def noam_peak(factor: float, d_model: int, warmup: int) -> float:
    """The peak of the paper's formula, factor · d_model^-1/2 · min(n^-1/2, n · warmup^-3/2)."""
    return factor / math.sqrt(d_model * warmup)


def cosine(n: int, warmup: int, peak: float, steps: int, final: float) -> float:
    """Linear up to `peak`, then half a cosine down to final · peak at n = steps."""
    if n <= warmup:
        return peak * n / warmup
    done = min(1.0, (n - warmup) / max(1, steps - warmup))
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * done)) / 2)


def constant(n: int, warmup: int, peak: float) -> float:
    """Linear up to `peak`, then level."""
    return peak * min(1.0, n / max(1, warmup))


def cooled(n: int, steps: int, cooldown: int) -> float:
    """The factor of the cooldown: 1 until n = steps − cooldown, then linear to nearly zero at n = steps."""
    return min(1.0, max(1, steps - n + 1) / (cooldown + 1))


def learning_rate(n: int, settings: TrainingSettings, d_model: int) -> float:
    """The rate of update n under these settings."""
    warmup, end = max(1, settings.warmup), cooled(n, settings.steps, settings.cooldown)
    if settings.schedule == "noam":
        peak = settings.peak
        if peak is None:
            peak = noam_peak(1.0 if settings.factor is None else settings.factor, d_model, warmup)
        return noam(n, warmup, peak) * end
    assert settings.peak is not None  # the settings refuse its absence
    if settings.schedule == "cosine":
        return cosine(n, warmup, settings.peak, settings.steps, settings.final)
    return constant(n, warmup, settings.peak) * end
