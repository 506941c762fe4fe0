"""Plans carried out on emulated links, beside other designs: `gapless run bagpipe --plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.execution.compact import compact_batches, shard_of_rows, used_rows
from gapless.encodings.bagpipe.execution.order import POOLING
from gapless.encodings.bagpipe.execution.stream import batches_to_run
from gapless.encodings.bagpipe.lowering.actions import BY_USERS, EVERYWHERE
from gapless.encodings.bagpipe.problem import Planning, Problem, RunDecision, problem_of
from gapless.encodings.bagpipe.question import BASELINES, LAYOUTS, SHARDED, Question
from gapless.encodings.bagpipe.run.command import EMULATED, ON_DEMAND
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.encodings.bagpipe.solve import solve
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, replay_of
from gapless.options import SolveOptions
from gapless.processes.plans_to_run import not_run
from gapless.profiles.traces.trace import Trace
from gapless.result import read_saved
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.encodings.bagpipe.training.runs import Carried, RunToCarry
    from gapless.torch.embeddings.task import Task

__all__ = ["Row", "asked_again", "execute_plan", "moved_rows", "values_apart"]

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
    `fetched`, `written`: rows, planned and moved.
    """

    name: str
    times: Times
    carried: Carried
    values_apart: int | None
    sums_error: float
    errors: Mapping[str, float]
    fetched: tuple[int, int]
    written: tuple[int, int]

    @property
    def is_as_planned(self) -> bool:
        """Whether it ended with the numbers that it must, and moved the rows that it should."""
        rounded = max(self.errors["dense_error"], self.errors["loss_error"]) < _ROUNDING
        is_same = self.sums_error < _ROUNDING if self.values_apart is None else not self.values_apart
        return rounded and is_same and self.fetched[0] == self.fetched[1] and self.written[0] == self.written[1]

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
            "name": self.name, "predicted_s": self.makespan_s, "emulated_s": carried.emulated_end_s,
            "measured_s": carried.measured_end_s, "late_s": carried.late_s,
            "steps": {
                "predicted_s": self.times.ready_s.tolist(), "emulated_s": list(carried.emulated_s),
                "measured_s": list(carried.measured_s),
            },
            "values_apart": self.values_apart, "sums_error": self.sums_error, **self.errors,
            "moved_rows": carried.moved_rows,
            "fetched_rows": {"planned": self.fetched[0], "moved": self.fetched[1]},
            "written_rows": {"planned": self.written[0], "moved": self.written[1]},
        }  # fmt: skip


def asked_again(plan: SavedPlan, where: str) -> Question:
    """The question of a run, in the words that its file keeps. Raises `InputError` where it keeps none."""
    kept = plan.run.get("question")
    fields = kept.get("fields") if isinstance(kept, Mapping) else None
    if not isinstance(fields, Mapping):
        rule = "must be kept in the file in words, as `gapless solve` does"
        raise InputError(f"{where}: question: {rule}; it was asked with objects of Python")
    return Question(**{str(name): value for name, value in fields.items()})


def execute_plan(values: Mapping[str, Any], session: Session) -> Answer:
    """What ran, what it took as predicted, emulated and measured, and whether the tables are what they must be."""
    path = values["plan"]
    plan = read_saved(path)
    run = plan.windows
    if not isinstance(run, RunPlan):
        raise InputError(f"{path}: run takes a plan of bagpipe, got one of {plan.system}")
    report = replay_of(plan.schedule, run)
    if not report.valid:
        return not_run(report)
    asked = asked_again(plan, path)
    problem, design = problem_of(asked), RunDecision.of(plan, path).design
    runs = {"plan": (run, design)}
    for name in values["beside"]:
        planning = _planning(problem, name, run)
        session.say(f"planning {name} ...")
        other = solve(Problem(problem.trace, planning, run.machine.cluster), _quiet(session.options)).windows
        assert isinstance(other, RunPlan), "no time limit cuts it short"
        runs[name] = other, planning.design
    rows = _carried(values, session, asked, problem.trace, runs)
    return _answer(values, run.machine.cluster, design, rows)


def _quiet(options: SolveOptions) -> SolveOptions:
    return replace(options, solver=None, on_progress=None, unfinished=None)


def _planning(problem: Problem, name: str, run: RunPlan) -> Planning:
    """How another run of the same batches is planned."""
    own, cache = problem.planning, run.machine.cache_rows
    asked: dict[str, Any] = {"batches": run.count, "objective": "auto", "method": "auto", "replicated": ()}
    asked |= {"design": name, "lookahead": own.lookahead, "cache_rows": own.cache_rows}
    if name in SHARDED:
        asked |= {"lookahead": None, "cache_rows": None}
    elif name == ON_DEMAND:
        asked |= {"design": "lfu", "lookahead": None, "cache_rows": int(run.rows.max()), "method": "contiguous"}
    elif name in BASELINES:
        asked |= {"lookahead": None, "cache_rows": cache}
    elif own.lookahead is None and own.cache_rows is None:
        asked |= {"cache_rows": cache}
    return replace(own, **asked)


def _carried(
    values: Mapping[str, Any], session: Session, asked: Question, trace: Trace, runs: Mapping[str, tuple[RunPlan, str]]
) -> list[Row]:  # fmt: skip
    from gapless.encodings.bagpipe.training.reference import trained_in_parts
    from gapless.encodings.bagpipe.training.runs import RunsTask, RunToCarry, carry
    from gapless.torch.embeddings.training import Alone, distances, trained_alone

    cluster = runs["plan"][0].machine.cluster
    of_trace = {name: list(batches_to_run(run, trace, asked.batch_size)) for name, (run, _) in runs.items()}
    ids, table_rows = used_rows(of_trace["plan"], trace.table_count)
    batches = {name: compact_batches(each, ids) for name, each in of_trace.items()}
    task = _task(values, session, asked, cluster, table_rows)
    nobody: Ints = np.empty(0, dtype=np.int64)
    to_carry = [
        RunToCarry(name, design, run.times, batches[name],
                   shard_of_rows(batches[name], table_rows) if LAYOUTS[design] == POOLING else nobody)
        for name, (run, design) in runs.items()
    ]  # fmt: skip
    session.say(f"running {len(runs)} designs in {task.ranks} processes ...")
    runs_task = RunsTask(task, cluster, tuple(runs), values["dilation"], values["emulate"] == EMULATED[0])
    carried = carry(runs_task, to_carry, session.options.stop)
    alone = trained_alone(task, batches["plan"], session.options.stop)
    rows = []
    for run, found in zip(to_carry, carried, strict=True):
        parts = trained_in_parts(task, run.batches)
        apart = None if LAYOUTS[run.design] == POOLING else values_apart(task, parts, found)
        same = distances(task, Alone(*parts, alone.losses), found.of_ranks)["row_error"]
        errors = distances(task, alone, found.of_ranks)
        rows.append(Row(run.name, run.times, found, apart, same, errors, *moved_rows(run, found)))
    return rows


def _task(
    values: Mapping[str, Any], session: Session, asked: Question, cluster: Cluster, table_rows: tuple[int, ...]
) -> Task:  # fmt: skip
    from gapless.torch.embeddings.task import Task

    servers = 0 if cluster.placement == "colocated" else cluster.servers
    if cluster.trainers + servers > _MOST_PROCESSES:
        got = f"{cluster.trainers} trainers and {servers} servers"
        raise InputError(f"plan: must be of at most {_MOST_PROCESSES} processes to be run here, got {got}")
    model = asked.model if isinstance(asked.model, str) else "dlrm"
    return Task(
        cluster.trainers, table_rows, asked.dimension, asked.optimizer, values["step_size"], session.options.seed,
        values["wait"], model, servers,
    )  # fmt: skip


_MOST_PROCESSES = 64


def values_apart(task: Task, expected: Sequence[Any], found: Carried) -> int:
    """How many values of rows and dense parameters have other bits than they must."""
    rows, dense = expected
    apart = 0
    for server, each in enumerate(found.of_ranks[-task.sharding.servers :]):
        apart += _apart(each["rows"], rows[task.sharding.rows_of(server)])
    return apart + sum(_apart(each["dense"], dense) for each in found.of_ranks[: task.trainers])


def _apart(one: Any, other: Any) -> int:
    return int((one.contiguous().numpy().view(np.int32) != other.contiguous().numpy().view(np.int32)).sum())


def moved_rows(run: RunToCarry, found: Carried) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows fetched and written, as the actions have them, and as they moved."""
    fetched = written = 0
    for batch in run.batches:
        actions, by = batch.actions, batch.actions.fetched_by
        fetched += actions.trainers * int((by == EVERYWHERE).sum()) + int((by >= 0).sum())
        fetched += int(actions.users[by == BY_USERS].sum())
        written += int(actions.evicted.sum())
    moved = found.moved_rows
    return (fetched, moved.get("prefetch", 0)), (written, moved.get("write_early", 0) + moved.get("write_late", 0))


def _answer(values: Mapping[str, Any], cluster: Cluster, design: str, rows: Sequence[Row]) -> Answer:
    dilation, is_timed = values["dilation"], values["emulate"] == EMULATED[0]
    lines = [
        f"{'':<23} {'predicted':>10} {'emulated':>10} {'measured':>10} {'ratio':>6} {'of the plan':>12}  values apart"
    ]
    own_s = rows[0].taken_s(is_timed)
    for row in rows:
        name = f"plan, {design}" if row.name == "plan" else row.name
        measured, taken_s = format_seconds(row.carried.measured_end_s) if is_timed else "-", row.taken_s(is_timed)
        apart = "sums in another order" if row.values_apart is None else f"{row.values_apart}"
        lines.append(
            f"{name:<23} {format_seconds(row.makespan_s):>10} {format_seconds(row.carried.emulated_end_s):>10} "
            f"{measured:>10} {taken_s / row.makespan_s:>6.3f} {taken_s / own_s:>12.3f}  {apart}"
        )
    slower = f", {dilation:g} times as slow" if is_timed and dilation > 1 else ""
    batches = len(rows[0].carried.emulated_s)
    lines.append(f"{batches} batches, {cluster.trainers} trainers; links and passes are emulated{slower}")
    notes = [
        f"{row.name}: messages were through up to {format_seconds(row.carried.late_s)} after the emulated instant; "
        "take a larger --dilation, or a quieter machine"
        for row in rows
        if is_timed and row.carried.late_s > _LATE * row.makespan_s
    ]
    data = {
        "valid": all(row.is_as_planned for row in rows), "design": design, "emulated": values["emulate"],
        "dilation": dilation, "trainers": cluster.trainers, "batches": batches, "rows": [row.data for row in rows],
    }  # fmt: skip
    return Answer(data, "\n".join(lines), tuple(notes), is_valid=bool(data["valid"]))
