"""Commands beside `solve`: modes measured, and plans run in language models. They need the extra `hf`."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
