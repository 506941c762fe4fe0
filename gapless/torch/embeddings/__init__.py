"""Embeddings of recommendation models: the data loading and the caches of trainers, carried out as planned."""
