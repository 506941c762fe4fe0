"""The systems that the documentation and lists of questions name by hand: those with a paper to cite.

A folder of `encodings/` is a system before it has references, a tutorial, a notebook and questions in every list.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["PUBLISHED"]

_ENCODINGS = Path(__file__).resolve().parents[2] / "encodings"
PUBLISHED = tuple(sorted(path.parent.name for path in _ENCODINGS.glob("*/references.bib")))
