"""Plans run by torch on processes of this machine: steps and trainings beside one process, and how long steps take."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
