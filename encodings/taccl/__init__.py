"""TACCL: collective algorithms from communication sketches, in three stages."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.taccl.chunked import Chunked
    from gapless.encodings.taccl.problem import Problem
    from gapless.encodings.taccl.sketch.format import Sketch, load_sketch, read_sketch, sketch_names

__all__ = ["Chunked", "Problem", "Sketch", "load_sketch", "read_sketch", "sketch_names"]

__getattr__ = names_of(__name__, {
    "chunked": ("Chunked",),
    "problem": ("Problem",),
    "sketch.format": ("Sketch", "load_sketch", "read_sketch", "sketch_names",),
})  # fmt: skip
