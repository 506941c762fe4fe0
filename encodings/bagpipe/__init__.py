"""Bagpipe: which trainer gets which example, and what to prefetch, cache, synchronise and evict, and when."""
