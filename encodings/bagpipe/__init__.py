"""Bagpipe: lookahead caching of embedding rows, and partitions of batches that move few of them."""

from planwright.encodings.bagpipe.costs import Batch, capacities, cost_matrix
from planwright.encodings.bagpipe.partition import METHODS, OBJECTIVES, Effort, Partition, partition

__all__ = ["METHODS", "OBJECTIVES", "Batch", "Effort", "Partition", "capacities", "cost_matrix", "partition"]
