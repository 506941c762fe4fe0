"""Plans for a block's call that keep more or less of it until its backward pass, and what each holds when.

The solver knows one limit, of memory at any time. What else takes memory between a block's forward and its backward
pass, the rest of the model, is workspace of the place where the loss stands: so less may be kept there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import load_record
from gapless.ir.live_memory import live_bytes
from gapless.options import SolveOptions
from gapless.profiles.training.graph import TrainingGraph
from gapless.torch.calls.kept import KeptPlans, plan_key
from gapless.torch.capture.program import CapturedStep
from gapless.torch.run.step_plan import StepPlan

__all__ = ["BlockPlan", "Choices"]

_OPTIONS = SolveOptions(gap=0.05, time_limit_s=10.0)
_PEAKS = (1.0, 0.85, 0.7, 0.5)
"""Limits of a block's own memory, as shares of what it takes where nothing is recomputed."""
_KEPT = (1.0, 0.7, 0.45, 0.2, 0.0)
"""Of what it then keeps for its backward pass."""
_Limit: TypeAlias = tuple[int, int]
"""Bytes at most, and bytes that are taken besides between forward and backward pass."""
_FORMAT = "gapless.block-limits"


@dataclass(frozen=True)
class BlockPlan:
    """A plan of a block's call, and what it holds: at most in the forward pass, then until the backward pass (outputs
    included), at most in the backward pass (with the gradients of its parameters and arguments), and at its end.
    """

    plan: StepPlan
    forward_bytes: int
    kept_bytes: int
    backward_bytes: int
    end_bytes: int
    duration_s: float

    @classmethod
    def of(cls, plan: StepPlan) -> BlockPlan:
        """What a plan holds, from its schedule."""
        schedule, step = plan.schedule, plan.step
        live = live_bytes(schedule, range(len(schedule.kind)))
        ops = [schedule.graph.ops[int(op)] for op in schedule.op]
        stop = next(number for number, op in enumerate(ops) if op.kind == "loss")
        beside = ops[stop].implementations[int(schedule.implementation[stop])].workspace_bytes
        border = step.border_bytes
        return cls(
            plan,
            forward_bytes=int(live[:stop].max(initial=0)) - border,
            kept_bytes=int(live[stop]) - beside - border,
            backward_bytes=int(live[stop + 1 :].max(initial=0)),
            end_bytes=step.graph.backward[-1].fixed_bytes,
            duration_s=float(np.max(schedule.end_s)),
        )


class Choices:
    """The plans to choose among for calls of blocks; calls with equal graphs share them. `cache`: as for `planned`."""

    def __init__(self, options: SolveOptions | None, cache: str | Path | None, report: Callable[[str], None]) -> None:
        self._options, self._cache, self._report = options or _OPTIONS, cache, report
        self._found: dict[str, list[BlockPlan]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Copies have the files alone."""
        return {**self.__dict__, "_found": {}}

    def plan(self, step: CapturedStep, shapes: str) -> tuple[StepPlan, str]:
        """The plan of a captured call that keeps least, and of these the one with the least peak."""
        least = min(self.of(step, shapes), key=lambda each: (each.kept_bytes, each.forward_bytes + each.backward_bytes))
        return least.plan, ""

    def of(self, step: CapturedStep, shapes: str) -> list[BlockPlan]:
        """Of a captured call, the fastest first. `shapes`: of its arguments, for people."""
        key = plan_key(step, "", self._options)
        if key not in self._found:
            with TemporaryDirectory() as folder:
                cache = Path(folder) / "operators.json" if self._cache is None else self._cache
                self._found[key] = _useful(self._made(step, shapes, cache, key))
        return [replace(each, plan=replace(each.plan, step=step)) for each in self._found[key]]

    def _made(self, step: CapturedStep, shapes: str, cache: str | Path, key: str) -> list[BlockPlan]:
        """A plan without limits, and those within limits. In a folder these are noted, so that what was found not to
        fit is asked once."""
        full = BlockPlan.of(KeptPlans("1x", self._options, cache, self._report).plan(step, shapes)[0])
        path = Path(cache) / f"blocks-{key[:32]}.json" if Path(cache).is_dir() else None
        known = None if path is None or not path.exists() else self._read(path)
        found, noted = [full], []
        for row in _limits(step, full) if known is None else [known]:
            plans = list(self._within(row, step, shapes, cache))
            if not plans:  # nor is there one where less is held
                break
            found += plans
            noted += row[: len(plans)]
        if path is not None and noted != known:
            flat = [number for limit in noted for number in limit]
            write_text(path, json.dumps({"format": _FORMAT, "version": 1, "limits": flat}) + "\n")
        return found

    def _within(self, row: Sequence[_Limit], step: CapturedStep, shapes: str, cache: str | Path) -> Iterator[BlockPlan]:
        """Plans within limits, as long as there is one."""
        for limit, beside in row:
            limited = replace(step, graph=_with_beside(step.graph, beside))
            try:
                plan, _ = KeptPlans(limit, self._options, cache, self._report).plan(limited, shapes)
            except InputError:
                return
            yield BlockPlan.of(plan)

    def _read(self, path: Path) -> list[_Limit] | None:
        """The limits in a file; None for another's or a damaged one."""
        try:
            record = load_record(path)
            record.text("format", (_FORMAT,))
            numbers = record.integers("limits", 0)
        except InputError as error:
            self._report(f"{error}; planned anew, and the file is replaced")
            return None
        return list(zip(numbers[::2], numbers[1::2], strict=False))


def _limits(step: CapturedStep, full: BlockPlan) -> Iterator[list[_Limit]]:
    """For less and less memory, less and less of it kept."""
    least_kept = step.graph.fixed_bytes - step.border_bytes
    most = max(full.forward_bytes + step.border_bytes, full.backward_bytes)
    for peak_share in _PEAKS:
        kept = [int(least_kept + share * (full.kept_bytes - least_kept)) for share in _KEPT]
        limit = int(peak_share * most)
        beside = [limit - each - step.border_bytes for each in kept]
        yield [(limit, each) for each in beside if each >= 0]


def _with_beside(graph: TrainingGraph, size_bytes: int) -> TrainingGraph:
    """The graph of a step of which other work takes so many bytes where the loss stands."""
    *before, loss = graph.forward
    implementations = tuple(replace(each, workspace_bytes=size_bytes) for each in loss.implementations)
    return replace(graph, forward=(*before, replace(loss, implementations=implementations)))


def _useful(plans: list[BlockPlan]) -> list[BlockPlan]:
    """Those that no other is better than in all of time, kept memory and peaks."""

    def values(each: BlockPlan) -> tuple[float, ...]:
        return each.duration_s, each.kept_bytes, each.forward_bytes, each.backward_bytes

    useful = [
        each
        for number, each in enumerate(plans)
        if not any(
            all(one <= own for one, own in zip(values(other), values(each), strict=True))
            and (values(other) != values(each) or place < number)
            for place, other in enumerate(plans)
            if place != number
        )
    ]
    return sorted(useful, key=values)
