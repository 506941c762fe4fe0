"""Plans as FSDP2 takes and runs them."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
