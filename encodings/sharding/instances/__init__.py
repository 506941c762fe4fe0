"""Instances: nodes with choices, costs of pairs, a limit on memory; drawn ones, and those of another question."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
