"""What commands besides solve do: advice, what-ifs and their pictures, plans run by DDP, profiles measured."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
