"""What came of runs that were carried out: predicted, emulated and measured times, values, and rows that moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.lowering.actions import BY_USERS, EVERYWHERE, Actions
from gapless.encodings.bagpipe.run.command import EMULATED
from gapless.system import Answer
from gapless.units import format_count, format_seconds

if TYPE_CHECKING:
    from gapless.encodings.bagpipe.training.records import RunsTask, RunToCarry
    from gapless.encodings.bagpipe.training.runs import Carried
    from gapless.torch.embeddings.task import Task

__all__ = ["Row", "answer_of", "moved_rows", "planned_rows", "values_apart"]

_ROUNDING = 1e-3
"""A difference from one process beyond this part of the change that training made, or of a loss, isn't rounding."""
_LATE = 0.05
"""A lag behind the emulated links that is a larger share of a batch is said."""


@dataclass(frozen=True)
class Row:
    """A run that was carried out, and what was predicted of it.

    `values_apart`: that have other bits than training without a cache on the same examples; None of sums of rows, which
    are added in another order: then `sums_error` is how far rows are from there. `errors`: of rows, dense parameters
    and losses, from training on whole batches by PyTorch's tables. These add the gradients of examples to a row one by
    one, and so round a row that many use more often.
    `fetched`, `written`: rows, planned and moved. `is_whole`: all batches were carried out once.
    """

    name: str
    times: Times
    carried: Carried
    values_apart: int | None
    sums_error: float
    errors: Mapping[str, float]
    fetched: tuple[int, int]
    written: tuple[int, int]
    is_whole: bool = True

    @property
    def losses(self) -> list[float]:
        """Of each batch."""
        losses: list[float] = self.carried.of_ranks[0]["losses"]
        return losses

    @property
    def recovery(self) -> dict[str, int | None] | None:
        """As `Carried.recovery`, and how many values have other bits after it."""
        found = self.carried.recovery
        return None if found is None else {**found, "values_apart": self.values_apart}

    @property
    def is_as_planned(self) -> bool:
        """Whether it ended with the numbers that it must, and moved the rows that it should."""
        rounded = max(self.errors["dense_error"], self.errors["loss_error"]) < _ROUNDING
        is_same = self.sums_error < _ROUNDING if self.values_apart is None else not self.values_apart
        is_moved = self.fetched[0] == self.fetched[1] and self.written[0] == self.written[1]
        return rounded and is_same and (is_moved or not self.is_whole)

    @property
    def makespan_s(self) -> float:
        """As predicted."""
        times = self.times
        last = (times.write_early, times.write_late, times.sync_now, times.sync_later)
        return float(max(span.end_s[-1] for span in last))

    def taken_s(self, is_timed: bool) -> float:
        """Until all was written back, by the clock, or by the messages."""
        return self.carried.measured_end_s if is_timed else self.carried.emulated_end_s

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        carried = self.carried
        return {
            "name": self.name, "predicted_s": self.makespan_s, "emulated_s": carried.emulated_end_s or None,
            "measured_s": carried.measured_end_s or None, "late_s": carried.late_s,
            "steps": {
                "predicted_s": self.times.ready_s.tolist(), "emulated_s": list(carried.emulated_s),
                "measured_s": list(carried.measured_s),
            },
            "values_apart": self.values_apart, "sums_error": self.sums_error, **self.errors,
            "moved_rows": carried.moved_rows,
            "fetched_rows": {"planned": self.fetched[0], "moved": self.fetched[1]},
            "written_rows": {"planned": self.written[0], "moved": self.written[1]},
        }  # fmt: skip


def values_apart(task: Task, expected: Sequence[Any], found: Carried) -> int:
    """How many values of rows and dense parameters have other bits than they must."""
    rows, dense = expected
    apart = 0
    for server, each in enumerate(found.of_ranks[-task.sharding.servers :]):
        apart += _apart(each["rows"], rows[task.sharding.rows_of(server)])
    return apart + sum(_apart(each["dense"], dense) for each in found.of_ranks[: task.trainers])


def _apart(one: Any, other: Any) -> int:
    return int((one.contiguous().numpy().view(np.int32) != other.contiguous().numpy().view(np.int32)).sum())


def planned_rows(actions: Iterable[Actions]) -> tuple[int, int]:
    """Rows that batches fetch, and that they write back."""
    fetched = written = 0
    for batch in actions:
        by = batch.fetched_by
        fetched += batch.trainers * int((by == EVERYWHERE).sum()) + int((by >= 0).sum())
        fetched += int(batch.users[by == BY_USERS].sum())
        written += int(batch.evicted.sum())
    return fetched, written


def moved_rows(run: RunToCarry, found: Carried) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows fetched and written, as planned, and as they moved."""
    fetched, written = planned_rows(batch.actions for batch in run.batches)
    moved = found.moved_rows
    return (fetched, moved.get("prefetch", 0)), (written, moved.get("write_early", 0) + moved.get("write_late", 0))


def answer_of(task: RunsTask, design: str, rows: Sequence[Row]) -> Answer:
    """A line for each run, and what is said of the first one besides."""
    training, own, batches = task.training, rows[0], len(rows[0].times.forward.start_s)
    is_timed, is_kept = task.sleeps, training.is_kept
    lines = [
        f"{'':<23} {'predicted':>10} {'emulated':>10} {'measured':>10} {'ratio':>6} {'of the plan':>12}  values apart"
    ]
    for row in rows:
        name = f"plan, {design}" if row.name == "plan" else row.name
        apart = "sums in another order" if row.values_apart is None else f"{row.values_apart}"
        if is_kept:
            taken = f"{'-':>10} {'-':>10} {'-':>6} {'-':>12}"
        else:
            measured, taken_s = format_seconds(row.carried.measured_end_s) if is_timed else "-", row.taken_s(is_timed)
            emulated, of_plan = format_seconds(row.carried.emulated_end_s), taken_s / own.taken_s(is_timed)
            taken = f"{emulated:>10} {measured:>10} {taken_s / row.makespan_s:>6.3f} {of_plan:>12.3f}"
        lines.append(f"{name:<23} {format_seconds(row.makespan_s):>10} {taken}  {apart}")
    slower = f", {task.dilation:g} times as slow" if is_timed and task.dilation > 1 else ""
    links = "nothing is emulated" if is_kept else f"links and passes are emulated{slower}"
    lines.append(f"{batches} batches of {training.model}, {training.trainers} trainers; {links}")
    lines += _of_first(training, own)
    notes = [
        f"{row.name}: messages were through up to {format_seconds(row.carried.late_s)} after the emulated instant; "
        "take a larger --dilation, or a quieter machine"
        for row in rows
        if is_timed and row.carried.late_s > _LATE * row.makespan_s
    ]
    data = {
        "valid": all(row.is_as_planned for row in rows), "design": design, "emulated": EMULATED[not is_timed],
        "dilation": task.dilation, "trainers": training.trainers, "batches": batches, "model": training.model,
        "optimizer": training.optimizer, "losses": own.losses, "recovery": own.recovery,
        "restored_after": training.start - 1 if training.start else None, "rows": [row.data for row in rows],
    }  # fmt: skip
    return Answer(data, "\n".join(lines), tuple(notes), is_valid=bool(data["valid"]))


def _of_first(task: Task, own: Row) -> list[str]:
    """What a run was trained to, and from which batch on."""
    losses, recovery = own.losses, own.carried.recovery
    lines = [f"losses {losses[0]:.4f} to {losses[-1]:.4f}, {own.errors['loss_error']:.1e} from one process"]
    if task.start:
        lines.append(f"restored after batch {task.start - 1}, from {task.checkpoint}")
    if recovery is not None:
        kept, copied = recovery["kept"], recovery["copied_bytes"]
        back = f"all go back to batch {kept}, {task.lost_batch - kept} again" if kept >= 0 else "all begin again"
        lines.append(f"lost trainer {recovery['lost']} in batch {task.lost_batch}; {back}")
        lines.append(f"copied {format_count(copied)} bytes from the other trainers to the new one")
    if own.is_whole:
        (fetch, fetched), (write, written) = own.fetched, own.written
        said = "as planned" if (fetch, write) == (fetched, written) else f"the plan has {fetch:,} and {write:,}"
        lines.append(f"{fetched:,} rows fetched, {written:,} written: {said}")
    return lines
