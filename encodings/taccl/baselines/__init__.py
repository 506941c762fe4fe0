"""Baselines: the algorithms that libraries run today (NCCL's templates), as schedules on any topology."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
