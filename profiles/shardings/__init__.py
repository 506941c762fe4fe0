"""Instances of sharding that another system made of a model, by name, and what that system answered."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
