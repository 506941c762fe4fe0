"""Runs: batches planned one after the other into a file, read again, gone on with, and carried out."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
