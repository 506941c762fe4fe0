"""planwright: optimisation problems for the scheduling of ML systems, solved and replayed."""

from __future__ import annotations

from pathlib import Path as _Path

# A checkout keeps solvers/, encodings/, topologies/ and profiles/ beside this folder; an installed package has them
# inside it. Looking one level up makes the checkout work without an install.
_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "encodings").is_dir():
    __path__.append(str(_checkout))
