"""Runs carried out: what each process sends to each other one, batch by batch, and what that takes."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
