"""What commands besides solve do: advice, indices recorded, plans run by processes, training by them."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
