"""Plans carried out by processes of this machine, beside other designs: `gapless run bagpipe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.execution.compact import compact_batches, shard_of_rows, used_rows, whole_tables
from gapless.encodings.bagpipe.execution.order import POOLING
from gapless.encodings.bagpipe.execution.report import Row, answer_of, moved_rows, values_apart
from gapless.encodings.bagpipe.execution.stream import BatchToRun, batches_to_run
from gapless.encodings.bagpipe.problem import REPLICATING, Planning, Problem, RunDecision, problem_of
from gapless.encodings.bagpipe.question import BASELINES, LAYOUTS, PAPERS, SHARDED, Question
from gapless.encodings.bagpipe.run.command import ASKED, EMULATED, ON_DEMAND, WITH_PLAN
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.encodings.bagpipe.solve import solve
from gapless.errors import InputError
from gapless.io.atomic import make_folder
from gapless.io.plan import SavedPlan, replay_of
from gapless.options import SolveOptions
from gapless.processes.plans_to_run import not_run
from gapless.profiles.traces.trace import Trace
from gapless.result import read_saved
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.embeddings.task import Task

__all__ = ["asked_again", "execute"]

_MOST_PROCESSES = 64
_MOST_VALUES = 2**27
"""Of all tables, where they are trained whole: each process draws them."""


def asked_again(plan: SavedPlan, where: str) -> Question:
    """The question of a run, in the words that its file keeps. Raises `InputError` where it keeps none."""
    kept = plan.run.get("question")
    fields = kept.get("fields") if isinstance(kept, Mapping) else None
    if not isinstance(fields, Mapping):
        rule = "must be kept in the file in words, as `gapless solve` does"
        raise InputError(f"{where}: question: {rule}; it was asked with objects of Python")
    return Question(**{str(name): value for name, value in fields.items()})


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """What ran, what it took as predicted, emulated and measured, and whether the tables are what they must be."""
    import gapless.torch.library  # noqa: F401  # says in one line where PyTorch isn't installed, before anything is planned

    is_kept = values["kill_trainer"] is not None or values["checkpoint"] is not None
    _check(values, is_kept)
    if (path := values["plan"]) is None:
        asked = _asked(values)
        problem = problem_of(asked)
        session.say("planning ...")
        solved = solve(problem, _quiet(session.options))
        run, decision, schedule = solved.windows, solved.decision, solved.schedule
        assert isinstance(decision, RunDecision)
        design = decision.design
    else:
        plan = read_saved(path)
        run, schedule = plan.windows, plan.schedule
        if not isinstance(run, RunPlan):
            raise InputError(f"{path}: run takes a plan of bagpipe, got one of {plan.system}")
        asked, design = asked_again(plan, path), RunDecision.of(plan, path).design
        problem = problem_of(asked)
    assert isinstance(run, RunPlan), "no time limit cuts it short"
    assert schedule is not None
    report = replay_of(schedule, run)
    if not report.valid:
        return not_run(report)
    runs = {"plan": (run, design)}
    for name in values["beside"] or (() if path is None or is_kept else _BESIDE):
        planning = _planning(problem, name, run)
        session.say(f"planning {name} ...")
        other = solve(Problem(problem.trace, planning, run.machine.cluster), _quiet(session.options)).windows
        assert isinstance(other, RunPlan), "no time limit cuts it short"
        runs[name] = other, planning.design
    return _carried(values, session, asked, problem.trace, runs)


_BESIDE = (ON_DEMAND, "lfu", "partitioned", "table-wise")
"""What runs beside a plan if nothing is said."""


def _check(values: Mapping[str, Any], is_kept: bool) -> None:
    """Raise `InputError` for what doesn't go together."""
    if values["plan"] is None:
        for title in ("trace", "trainers", "batch_size"):
            if values[title] is None:
                raise InputError(f"{title}: must be given, or a --plan that has it")
    else:
        for field in ASKED:
            if values[field.name] not in (None, field.default):
                raise InputError(f"{field.name}: goes without --plan, which has its own, got {values[field.name]!r}")
    for name in WITH_PLAN if is_kept else ():
        if values[name] is not None:
            raise InputError(f"{name}: goes without --kill-trainer and --checkpoint, with which nothing is emulated")
    if values["restore"] and values["checkpoint"] is None:
        raise InputError("restore: needs the folder of a checkpoint; give --checkpoint FOLDER")


def _asked(values: Mapping[str, Any]) -> Question:
    """What is planned, where no plan is given; a loss takes a design that survives it."""
    asked = Question(**{field.name: values[field.name] for field in ASKED if values[field.name] is not None})
    return replace(asked, design=PAPERS) if asked.design == "auto" and values["kill_trainer"] is not None else asked


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
) -> Answer:  # fmt: skip
    from gapless.encodings.bagpipe.training.records import RunsTask, RunToCarry
    from gapless.encodings.bagpipe.training.reference import trained_in_parts
    from gapless.encodings.bagpipe.training.runs import carry
    from gapless.torch.embeddings.alone import Alone, distances, trained_alone

    own, own_design = runs["plan"]
    batches = {name: tuple(batches_to_run(run, trace, asked.batch_size)) for name, (run, _) in runs.items()}
    if values["checkpoint"] is None:
        ids, table_rows = used_rows(batches["plan"], trace.table_count)
        batches = {name: compact_batches(each, ids) for name, each in batches.items()}
    else:
        table_rows = trace.table_rows or whole_tables(batches["plan"], trace.table_count)
    task = _task(values, session, asked, own, own_design, table_rows, batches["plan"])
    nobody: Ints = np.empty(0, dtype=np.int64)
    to_carry = [
        RunToCarry(name, design, run.times, batches[name],
                   shard_of_rows(batches[name], table_rows) if LAYOUTS[design] == POOLING else nobody)
        for name, (run, design) in runs.items()
    ]  # fmt: skip
    session.say(f"running {len(runs)} designs in {task.ranks} processes ...")
    emulated = values["emulate"] or EMULATED[values["plan"] is None or task.is_kept]
    runs_task = RunsTask(task, own.machine.cluster, tuple(runs), values["dilation"], emulated == EMULATED[0])
    carried = carry(runs_task, to_carry, session.options.stop)
    alone = trained_alone(task, batches["plan"], session.options.stop)
    rows = []
    for run, found in zip(to_carry, carried, strict=True):
        parts = trained_in_parts(task, run.batches)
        apart = None if LAYOUTS[run.design] == POOLING else values_apart(task, parts, found)
        same = distances(task, Alone(*parts, alone.losses), found.of_ranks)["row_error"]
        errors = distances(task, alone, found.of_ranks)
        is_whole = not task.start and found.recovery is None
        rows.append(Row(run.name, run.times, found, apart, same, errors, *moved_rows(run, found), is_whole))
    return answer_of(runs_task, own_design, rows)


def _task(
    values: Mapping[str, Any], session: Session, asked: Question, run: RunPlan, design: str,
    table_rows: tuple[int, ...], batches: Sequence[BatchToRun],
) -> Task:  # fmt: skip
    """What is trained, by whom. Raises `InputError` for a loss or a checkpoint that there can't be."""
    from gapless.torch.embeddings.checkpoints import checkpointed_batch
    from gapless.torch.embeddings.task import Task

    cluster, lost, folder = run.machine.cluster, values["kill_trainer"], values["checkpoint"] or ""
    servers = 0 if cluster.placement == "colocated" else cluster.servers
    if cluster.trainers + servers > _MOST_PROCESSES:
        got = f"{cluster.trainers} trainers and {servers} servers"
        raise InputError(f"plan: must be of at most {_MOST_PROCESSES} processes to be run here, got {got}")
    batch = run.count // 2 if values["at_batch"] is None else values["at_batch"]
    task = Task(
        cluster.trainers, table_rows, asked.dimension, asked.optimizer, values["step_size"], session.options.seed,
        values["wait"], asked.model if isinstance(asked.model, str) else "dlrm", servers,
        -1 if lost is None else lost, batch, checkpoint=folder,
        checkpoint_every=values["checkpoint_every"] if folder else 0,
    )  # fmt: skip
    if folder and sum(table_rows) * task.dimension > _MOST_VALUES:
        got = f"{sum(table_rows):,} rows of {task.dimension}"
        raise InputError(f"table_rows: times the dimension must be at most {_MOST_VALUES:,} values, got {got}")
    if (folder or lost is not None) and design in SHARDED:
        raise InputError(f"{'checkpoint' if folder else 'kill_trainer'}: needs a cache, got design {design}")
    if lost is not None:
        _check_loss(lost, task, design)
    if values["restore"]:
        task = replace(task, start=checkpointed_batch(Path(folder), task.question, batches) + 1)
    if not task.start <= batch < run.count and (lost is not None or values["at_batch"] is not None):
        raise InputError(f"at_batch: must be a batch that is trained, {task.start}..{run.count - 1}, got {batch}")
    if folder:
        make_folder(folder)
    return task


def _check_loss(lost: int, task: Task, design: str) -> None:
    """Raise `InputError` unless a trainer may be lost."""
    trainers = task.trainers
    if not (lost < trainers and trainers > 1):
        raise InputError(f"kill_trainer: must be one of at least two, in 0..{trainers - 1}, got {lost} of {trainers}")
    if design not in REPLICATING:
        rule = f"goes with the designs {', '.join(REPLICATING)}, whose trainers all have what is cached"
        raise InputError(f"kill_trainer: {rule}, got {design}; --checkpoint goes with every cache")
    if not task.servers:
        raise InputError("kill_trainer: needs servers apart from the trainers; their rows would be lost too")
