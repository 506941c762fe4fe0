"""Cupcake: which neighbouring gradients to compress and communicate together."""

from gapless.encodings.cupcake.fusion import Fusion, timeline
from gapless.encodings.cupcake.problem import Problem
from gapless.encodings.cupcake.system import METHODS

__all__ = ["METHODS", "Fusion", "Problem", "timeline"]
