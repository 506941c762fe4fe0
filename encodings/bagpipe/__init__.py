"""Bagpipe: which trainer gets which example, and what to prefetch, cache, synchronise and evict, and when."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.bagpipe.batch_plans import BatchPlan
    from gapless.encodings.bagpipe.cluster import Cluster, capacities
    from gapless.encodings.bagpipe.parameters import Bound, Parameters, Search
    from gapless.encodings.bagpipe.partition.batch import Batch, cost_matrix
    from gapless.encodings.bagpipe.partition.methods import Partition
    from gapless.encodings.bagpipe.problem import Planning, Problem
    from gapless.encodings.bagpipe.question import METHODS, OBJECTIVES

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
    "capacities",
    "cost_matrix",
]

__getattr__ = names_of(__name__, {
    "batch_plans": ("BatchPlan",),
    "cluster": ("Cluster", "capacities",),
    "partition.batch": ("Batch", "cost_matrix",),
    "parameters": ("Bound", "Parameters", "Search",),
    "partition.methods": ("Partition",),
    "problem": ("Planning", "Problem",),
    "question": ("METHODS", "OBJECTIVES",),
})  # fmt: skip
