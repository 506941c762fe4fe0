"""Baselines: the algorithms that libraries run today (NCCL's templates), as schedules on any topology."""

from gapless.encodings.taccl.baselines.library import Baseline, Baselines, baselines

__all__ = ["Baseline", "Baselines", "baselines"]
