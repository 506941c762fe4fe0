"""Training graphs: what one step of training costs, operator by operator; built, measured, or read from files."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
