"""Pipelines: what the layers of a model cost on one rank of a pipeline, and what compressors cost and spoil."""
