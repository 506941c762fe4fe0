"""Programs: what the runtimes execute, and what it costs them to cut each chunk over several thread blocks."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
