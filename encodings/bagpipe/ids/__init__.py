"""Ids: the distinct ids of a batch, and the rows of the cache in which they lie."""
