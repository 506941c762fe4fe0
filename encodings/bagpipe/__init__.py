"""Bagpipe: lookahead caching of embedding rows, and partitions of batches that move few of them."""

from planwright.encodings.bagpipe.costs import Batch, capacities, cost_matrix

__all__ = ["Batch", "capacities", "cost_matrix"]
