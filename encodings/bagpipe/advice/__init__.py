"""Advice: the cache designs side by side, the lookahead for a cache, and tables to replicate."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
