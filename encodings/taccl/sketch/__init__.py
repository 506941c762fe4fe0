"""Sketches: their format, the logical topology that they leave, candidates for any topology, and the search."""
