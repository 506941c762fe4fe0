"""Lowering: what trainers do, as a schedule of the graph IR, replayed window by window."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
