"""Attention heads of language models of `transformers`: measured, and run with some heads' keys left out of the cache.

Needs the extra `hf`.
"""
