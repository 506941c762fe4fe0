"""A cache of keys and values as a plan says: simulated, measured, and run in `transformers`.

Needs the extra `hf`.
"""
