"""Orders as schedules, and saved plans as what other programs run and people see."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
