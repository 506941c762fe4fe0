"""Tuning: from measured links to a table of the plans that beat the library, and a selector of them."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
