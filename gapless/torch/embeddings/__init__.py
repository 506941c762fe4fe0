"""Embeddings of recommendation models: the data loading and the caches of trainers, carried out as planned."""

from gapless.torch.embeddings.cache import Lookup, LrppCache, add_gradients
from gapless.torch.embeddings.plans import BatchPlan, CacheStep, PlannedBatchSampler, Sharding, shared_plans

__all__ = [
    "BatchPlan",
    "CacheStep",
    "Lookup",
    "LrppCache",
    "PlannedBatchSampler",
    "Sharding",
    "add_gradients",
    "shared_plans",
]
