"""Overhead against memory: a sweep over budgets, the least budget for a time, and memory over time as text."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
