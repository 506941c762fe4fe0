"""Plans as files of frameworks: torch's schedules, arguments of Megatron-LM, configurations of torchtitan."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
