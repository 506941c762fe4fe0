"""TACCL: collective algorithms from communication sketches, in three stages."""

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.sketch.format import Sketch, load_sketch, read_sketch, sketch_names

__all__ = ["Chunked", "Problem", "Sketch", "load_sketch", "read_sketch", "sketch_names"]
