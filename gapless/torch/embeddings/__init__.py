"""Embeddings of recommendation models: where their rows lie, and what trainers look up."""

from gapless.torch.embeddings.lookup import Lookup
from gapless.torch.embeddings.sharding import Sharding

__all__ = ["Lookup", "Sharding"]
