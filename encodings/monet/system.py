"""MONeT as the rest of gapless sees it."""

from __future__ import annotations

from typing import Any

from gapless.options import SolveOptions
from gapless.system import Plan, System

__all__ = ["SYSTEM"]


def _plan(problem: Any, options: SolveOptions, parameters: Any) -> Plan:
    from gapless.encodings.monet.solve import solve

    return solve(problem, options, parameters)


SYSTEM = System("monet", _plan)
