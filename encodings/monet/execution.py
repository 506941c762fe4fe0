"""A training step of a PyTorch model under a memory budget, planned, run and measured: `gapless run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.encodings.monet.problem import Problem
from gapless.solution import Status
from gapless.system import Answer, Session
from gapless.torch.joint_graph import CLOSE

__all__ = ["execute"]


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """The measured methods, the plan last. Needs the extra `torch`."""
    from gapless.torch.run import load_workload, reason_without_plan, run_and_compare

    found = run_and_compare(
        load_workload(values["model"]), Problem, values["budget"], session.options,
        name=values["model"], close=CLOSE if "all" in values["close"] else values["close"], cache=values["cache"],
        steps=values["steps"], tolerance=values["tolerance"], parameters=session.parameters, command=session.command,
        output=values["output"], report=session.say,
    )  # fmt: skip
    result = found.result
    return Answer(
        found.data,
        found.text,
        tuple(filter(None, ("" if result.valid else reason_without_plan(result), found.refusal))),
        is_complete=result.valid,
        is_valid=result.schedule is None or (result.valid and not found.refusal),
        is_infeasible=result.status is Status.INFEASIBLE,
    )
