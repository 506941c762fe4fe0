"""Bagpipe: which trainer gets which example, and what to prefetch, cache, synchronise and evict, and when."""

from gapless.encodings.bagpipe.batch_plans import BatchPlan, Planning, batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.costs import Batch, capacities, cost_matrix
from gapless.encodings.bagpipe.parameters import Bound, Parameters, Search
from gapless.encodings.bagpipe.partition import Partition, partition
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.system import METHODS, OBJECTIVES

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "Batch",
    "BatchPlan",
    "Bound",
    "Cluster",
    "Parameters",
    "Partition",
    "Planning",
    "Problem",
    "Search",
    "batch_plans",
    "capacities",
    "cost_matrix",
    "partition",
]
