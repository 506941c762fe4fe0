"""A step from a file: a plan with the record of its capture, made a callable step of a model in one call.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.result import load as load_result
from gapless.torch.capture.graph import capture
from gapless.torch.close_kinds import TOLERANCE
from gapless.torch.library import torch
from gapless.torch.run.capture_record import CAPTURE, example_arguments
from gapless.torch.run.step import Step, run, say
from gapless.torch.run.step_plan import planned

__all__ = ["load_step"]


def load_step(
    path: str | Path,
    model: Any,
    loss: Callable[..., Any] | None = None,
    *,
    tolerance: float | None = TOLERANCE,
    report: Callable[[str], None] = say,
) -> Step:
    """The step of a plan that `StepPlan.save` or `gapless run` wrote, for the model and loss that it was made for.

    The model is captured again, in the shapes that the file says; nothing in the file is run. Raises `InputError`, one
    line, where the file's plan doesn't fit the model. `tolerance`, `report`: as for `run`.
    """
    result = load_result(path)
    if CAPTURE not in result.details:
        rule = f"{path}: must be a plan with the record of its capture, as `save` of a planned step writes it"
        raise InputError(f"{rule}; for other plans of a step there is gapless.torch.run.load")
    record = Record(result.details[CAPTURE], f"{path}: details: {CAPTURE}")
    captured, now = (version.split(".")[:2] for version in (record.text("pytorch"), str(torch.__version__)))
    if captured != now:
        rule = f"must be of the PyTorch that runs it, {'.'.join(now)}, got one of {'.'.join(captured)}"
        raise InputError(f"{path}: the plan {rule}, whose operators may differ; capture and plan again")
    inputs, targets, options = example_arguments(record)
    if bool(model.training) != record.boolean("is_training"):
        wanted = "training" if record.boolean("is_training") else "evaluation"
        raise InputError(f"{path}: is for {wanted} mode; set the model to it with .train() or .eval()")
    step = capture(model, inputs, loss, targets=targets, **options)
    try:
        return run(planned(step, result), model, tolerance=tolerance, report=report)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
