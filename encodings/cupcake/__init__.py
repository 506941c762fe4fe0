"""Cupcake: which neighbouring gradients to compress and communicate together."""

from planwright.encodings.cupcake.fusion import Fusion, timeline
from planwright.encodings.cupcake.problem import METHODS, Problem

__all__ = ["METHODS", "Fusion", "Problem", "timeline"]
