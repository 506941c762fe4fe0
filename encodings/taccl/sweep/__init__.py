"""Sweep: one collective for a range of sizes, each with the plan and the instances that its replay finds fastest."""

from gapless.lazy import names_of

__getattr__ = names_of(__name__)
