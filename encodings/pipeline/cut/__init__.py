"""Cuts of a model's layers into stages, and what the stages cost."""
