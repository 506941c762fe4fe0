"""Sparse gradients: which entries each rank selects in each step, recorded or generated."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
