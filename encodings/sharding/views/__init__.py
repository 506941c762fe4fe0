"""What people see of a plan, and what is checked and written of it."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
