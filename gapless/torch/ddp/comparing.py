"""Several ways to cut and send the gradients of one model, each under DDP in the same processes. Needs `torch`."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.ddp_buckets import DdpBuckets
from gapless.leaving import temporary_folder
from gapless.torch.ddp.buckets import check_same_parameters, trainable
from gapless.torch.ddp.compressors import compressor_of
from gapless.torch.ddp.emulation import Sending
from gapless.torch.processes import run_processes
from gapless.torch.run.workload import load_named

__all__ = ["Measured", "RunTask", "Strategy", "compare", "read_task"]


@dataclass(frozen=True)
class Strategy:
    """One way: the groups that gradients are cut into, (first, last) in ready order, and how each is sent.

    `is_default`: DDP makes the groups itself, as its options are unless somebody sets them.
    """

    name: str
    groups: tuple[tuple[int, int], ...]
    sendings: tuple[Sending, ...]
    is_default: bool = False


@dataclass(frozen=True)
class RunTask:
    """What all ranks run: a model as `load_named` takes it, its gradients in ready order, and each strategy so often.

    `profile`: the name of what was planned for. `wait_s`: the longest that a rank waits for another. `forward_s`,
    `gaps_s`: what forward takes and what lies between gradients in emulated time; None and empty where they take what
    they take.
    """

    model: str
    profile: str
    seed: int
    parameter_names: tuple[str, ...]
    parameter_bytes: tuple[int, ...]
    strategies: tuple[Strategy, ...]
    repeats: int
    ranks: int
    wait_s: float
    forward_s: float | None = None
    gaps_s: tuple[float, ...] = ()

    def buckets(self, strategy: Strategy) -> DdpBuckets:
        """A strategy's buckets."""
        return DdpBuckets(self.profile, self.parameter_names, self.parameter_bytes, strategy.groups)


@dataclass(frozen=True)
class Measured:
    """What running a strategy found.

    `steps_s`: of each repetition, forward and backward, until the last rank is through. `buckets`: whether those that
    DDP had were the strategy's. `equal`, `gradients`: how many of the gradients have the bits that DDP finds by itself
    in the same buckets; `error`: the squared distance from those, relative to them, and `mean_error` that of the mean
    over all steps, which error feedback brings down. `late_s`: by how much a collective was
    through later than an emulated wire says, the most in a step and the median over steps.
    """

    name: str
    steps_s: tuple[float, ...]
    buckets: bool
    equal: int
    gradients: int
    error: float
    mean_error: float
    late_s: float


def compare(task: RunTask, stop: threading.Event | None = None) -> tuple[Measured, ...]:
    """Run all strategies. Raises `InputError` for a model or mode that can't be, or gradients that aren't the model's,
    `RunError` where a process fails.
    """
    model = load_named(task.model, task.seed).model
    parameters = trainable(model)
    devices = {str(parameter.device) for parameter in parameters.values()} - {"cpu"}
    if devices:
        raise InputError(f"model: ranks run on the CPU, over gloo, got parameters on {devices.pop()}")
    for strategy in task.strategies:
        check_same_parameters(parameters, task.buckets(strategy))
        for sending in strategy.sendings:
            compressor_of(sending.mode)
    with temporary_folder("gapless-ranks-") as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(asdict(task)), "utf-8")
        found = run_processes("gapless.torch.ddp.run_rank", folder, task.ranks, task.wait_s, stop)
    return tuple(_together(rows) for rows in zip(*(rank["strategies"] for rank in found), strict=True))


def _together(rows: Sequence[dict[str, Any]]) -> Measured:
    """What all ranks found of a strategy."""
    first = rows[0]
    return Measured(
        name=first["name"],
        steps_s=tuple(first["steps_s"]),
        buckets=all(row["buckets"] for row in rows),
        equal=min(row["equal"] for row in rows),
        gradients=first["gradients"],
        **{name: max(row[name] for row in rows) for name in ("error", "mean_error", "late_s")},
    )


def read_task(folder: Path) -> RunTask:
    """The task that `compare` left for its ranks."""
    data = json.loads((folder / "task.json").read_text("utf-8"))
    strategies = tuple(
        Strategy(
            row["name"], tuple(map(tuple, row["groups"])), tuple(Sending(**each) for each in row["sendings"]),
            row["is_default"],
        )
        for row in data["strategies"]
    )  # fmt: skip
    columns = {name: tuple(data[name]) for name in ("parameter_names", "parameter_bytes", "gaps_s")}
    return RunTask(**{**data, **columns, "strategies": strategies})
