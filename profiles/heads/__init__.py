"""How much attention heads resemble each other, and where that is from."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
