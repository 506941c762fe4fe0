"""Gradients: fusion profiles, compressors and their costs, and the analytic model of data-parallel training."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
