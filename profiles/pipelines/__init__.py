"""Pipelines: what the layers of a model cost on one rank of a pipeline, and what compressors cost and spoil."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
