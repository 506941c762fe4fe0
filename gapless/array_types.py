"""Arrays in type hints, by what they hold; a docstring says the shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Ids", "Ints", "Mask"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ids = NDArray[np.int64]
"""Numbers of things: ranks, links, chunks."""
Mask = NDArray[np.bool_]
