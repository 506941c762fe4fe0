"""Plans of a model's layouts, run on processes."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
