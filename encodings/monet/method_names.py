"""The names of the methods, for a question to choose from; `solve.METHODS` has what they do."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["METHODS"]

METHODS: Mapping[str, str] = {
    "auto": "checkpointing and implementations together, as MONeT does",
    "noop": "checkpointing alone, with the fastest convolutions that fit afterwards (MONeT-NoOp)",
    "conv": "checkpointing and the choice of convolutions",
    "output": "checkpointing and backward operators that need their output, convolutions afterwards",
    "intermediate": "checkpointing and backward operators that need an intermediate, convolutions afterwards",
    "checkmate": "Checkmate's plan, with the fastest convolutions that fit afterwards (Checkmate-O)",
    "checkmate-d": "Checkmate's plan, with default convolutions (Checkmate-D)",
    "gist": "operators that need few bytes, nothing recomputed (Gist without its lossy encodings)",
    "greedy": "keep all, then drop what is cheapest to recompute per byte until it fits",
    "sqrt": "keep the borders of about sqrt(n) segments (Chen)",
    "revolve": "binomial checkpointing of a chain (Griewank)",
    "store-all": "keep all that the default backward pass needs",
    "eager": "keep all, and choose as a framework does",
}
"""What may decide, with a line on each."""
