"""Advice: the cache designs side by side, the lookahead for a cache, and tables to replicate."""
