"""Sweep: one collective for a range of sizes, each with the plan and the instances that its replay finds fastest."""

from gapless.encodings.taccl.sweep.request import Request, sizes_between
from gapless.encodings.taccl.sweep.run import Outcome, sweep

__all__ = ["Outcome", "Request", "sizes_between", "sweep"]
