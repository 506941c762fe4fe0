"""Lookahead: what to prefetch, how long to keep it, and what to evict; and caches that don't look ahead."""
