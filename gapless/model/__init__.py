"""Models: mixed-integer linear programs held as arrays, and the forms in which solvers read them."""

from gapless.model.model import Family, Model, Term

__all__ = ["Family", "Model", "Term"]
