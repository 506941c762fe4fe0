"""Plans carried out by PyTorch on processes of this machine, beside one process: `gapless run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.array_types import Mask
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.execution.planned import execute_plan
from gapless.encodings.bagpipe.lowering.actions import EVERYWHERE, NOT_FETCHED, SYNC_LATER, SYNC_NOW, Actions
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.run.command import PLANNED, RUN, TRAINING
from gapless.errors import InputError
from gapless.io.atomic import make_folder
from gapless.profiles.traces.named import find_trace
from gapless.profiles.traces.recommendation import FLOAT_BYTES
from gapless.profiles.traces.trace import Trace, split_global_ids
from gapless.profiles.traces.trace_question import state_values
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.embeddings.task import Task
    from gapless.torch.embeddings.training import Trained

__all__ = ["execute", "planned_bytes"]

_MOST_VALUES = 2**27
"""Of all tables: each process draws them."""
_ROUNDING = 1e-3
"""A difference from one process beyond this part of the change that training made isn't rounding."""
_PLANNING = ("trainers", "batch_size", "lookahead", "cache_rows", "objective", "ownership", "shares", "batches")

_TRAINING = ("dimension", "model", "optimizer", "step_size", "wait")
_BY_PLAN = tuple(field.name for field in PLANNED)
_SERVING = ("servers", "kill_trainer", "at_batch", "checkpoint", "checkpoint_every", "restore")


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """What was trained, what it moved, and whether that is what the plans and one process say. Needs `torch`."""
    if values["plan"] is not None:
        _check_alone(values)
        return execute_plan(values, session)
    from gapless.torch.embeddings.training import train

    for title in ("trace", "trainers", "batch_size"):
        if values.get(title) is None:
            raise InputError(f"{title}: must be given, or a --plan that has it")
    others = (*_PLANNING, *_TRAINING, *_SERVING, *_BY_PLAN)
    trace = find_trace(**{name: value for name, value in values.items() if name not in others})
    planning = Planning(**{name: values[name] for name in _PLANNING if values.get(name) is not None})
    plans = list(batch_plans(trace, planning, options=replace(session.options, solver=None)))
    task = _task(values, planning.trainers, _table_rows(trace, plans), plans, session.options.seed)
    if sum(task.table_rows) * task.dimension > _MOST_VALUES:
        got = f"{sum(task.table_rows):,} rows of {task.dimension}"
        raise InputError(f"table_rows: times the dimension must be at most {_MOST_VALUES:,} values, got {got}")
    session.say(f"running {task.ranks} processes ...")
    return _answer(task, plans, train(task, plans, session.options.stop))


def _check_alone(values: Mapping[str, Any]) -> None:
    """Raise `InputError` for what a plan says already."""
    beside = {field.name for field in (*PLANNED, *TRAINING)}
    for field in RUN:
        if field.name not in beside and values.get(field.name) not in (None, field.default):
            raise InputError(f"{field.name}: goes without --plan, which has its own, got {values[field.name]!r}")


def _task(
    values: Mapping[str, Any], trainers: int, table_rows: tuple[int, ...], plans: Sequence[BatchPlan], seed: int
) -> Task:
    """What is trained, by whom. Raises `InputError` for a loss or a checkpoint that there can't be."""
    from gapless.torch.embeddings.checkpoints import checkpointed_batch
    from gapless.torch.embeddings.task import Task

    lost, folder = values.get("kill_trainer"), values.get("checkpoint") or ""
    batch = len(plans) // 2 if values.get("at_batch") is None else values["at_batch"]
    task = Task(
        trainers, table_rows, values["dimension"], values["optimizer"], values["step_size"], seed, values["wait"],
        values["model"], values.get("servers") or (0 if lost is None else 1), -1 if lost is None else lost, batch,
        checkpoint=folder, checkpoint_every=values["checkpoint_every"] if folder else 0,
    )  # fmt: skip
    if lost is not None and not (lost < trainers and trainers > 1):
        raise InputError(f"kill_trainer: must be one of at least two, in 0..{trainers - 1}, got {lost} of {trainers}")
    if values.get("restore"):
        if not folder:
            raise InputError("restore: needs the folder of a checkpoint; give --checkpoint FOLDER")
        task = replace(task, start=checkpointed_batch(Path(folder), task.question, plans) + 1)
    if not task.start <= batch < len(plans) and (lost is not None or values.get("at_batch") is not None):
        raise InputError(f"at_batch: must be a batch that is trained, {task.start}..{len(plans) - 1}, got {batch}")
    if folder:
        make_folder(folder)
    return task


def planned_bytes(actions: Sequence[Actions], users: Sequence[Mask], dimension: int, optimizer: str) -> dict[str, int]:
    """What a run of a replicated cache moves: rows with their state, and gradients from each user to all others.

    `users`: of each batch, bool (n, p), who uses which row.
    """
    rows = {"fetched": 0, "written": 0, "sync_now": 0, "sync_later": 0}
    for batch, used in zip(actions, users, strict=True):
        everywhere, by_any = batch.fetched_by == EVERYWHERE, batch.fetched_by != NOT_FETCHED
        rows["fetched"] += int(by_any.sum()) + (batch.trainers - 1) * int(everywhere.sum())
        rows["written"] += int(batch.evicted.sum())
        for kind, sync in (("sync_now", SYNC_NOW), ("sync_later", SYNC_LATER)):
            rows[kind] += (batch.trainers - 1) * int(used[batch.sync == sync].sum())
    gradient_bytes = dimension * FLOAT_BYTES
    row_bytes = gradient_bytes + state_values(optimizer, dimension) * FLOAT_BYTES
    return {kind: count * (gradient_bytes if kind.startswith("sync") else row_bytes) for kind, count in rows.items()}


def _table_rows(trace: Trace, plans: Sequence[BatchPlan]) -> tuple[int, ...]:
    """The rows of each table, as far as the plans use them where the trace doesn't say."""
    if trace.table_rows is not None:
        return trace.table_rows
    rows = np.ones(trace.table_count, dtype=np.int64)
    for plan in plans:
        tables, ids = split_global_ids(plan.step.ids)
        np.maximum.at(rows, tables, ids + 1)
    return tuple(rows.tolist())


def _answer(task: Task, plans: Sequence[BatchPlan], trained: Trained) -> Answer:
    actions, users = [Actions.of(plan) for plan in plans], [plan.users for plan in plans]
    planned = planned_bytes(actions, users, task.dimension, task.optimizer)
    is_equal = max(trained.row_error, trained.dense_error, trained.loss_error) < _ROUNDING
    asked = {"batches": len(plans), "optimizer": task.optimizer, "model": task.model}
    data = {**asdict(trained), "planned_bytes": planned, **asked}
    batches = f"{len(plans)} batches in {task.ranks} processes"
    lines = [
        ("trained", f"{task.model}, {batches}, {task.optimizer}, {task.dimension} values a row"),
        ("rows", f"{trained.row_error:.1e} of their change from one process, but for rounding"),
        ("dense part", f"{trained.dense_error:.1e} of its change from one process, but for rounding"),
        ("losses", f"{trained.loss_error:.1e} from one process, {trained.losses[0]:.4f} to {trained.losses[-1]:.4f}"),
    ]
    if trained.recovery is not None:
        lines += _recovered(task, trained.recovery)
        is_equal = is_equal and not trained.recovery.get("values_apart")
    if task.start:
        lines.append(("restored", f"after batch {task.start - 1}, from {task.checkpoint}"))
    is_whole = trained.recovery is None and not task.start
    for kind, size_bytes in trained.moved_bytes.items() if is_whole else ():
        said = "the plan's" if size_bytes == planned[kind] else f"the plan has {planned[kind]}"
        lines.append((f"{kind.replace('_', ' ')} bytes", f"{size_bytes}: {said}"))
    text = "\n".join(f"{title:<16} {text}" for title, text in lines)
    return Answer(data, text, is_valid=is_equal and not (is_whole and trained.moved_bytes != planned))


def _recovered(task: Task, recovery: Mapping[str, int]) -> list[tuple[str, str]]:
    """What is said of a lost trainer, whether it was to be lost or somebody else killed it."""
    lost, kept = f"trainer {recovery['lost']}", f"all go back to batch {recovery['kept']}"
    copied = f"{recovery['copied_bytes']} bytes from the other trainers to the new one"
    if "values_apart" not in recovery:
        return [("lost", f"{lost}; {kept}"), ("copied", copied)]
    again = task.lost_batch - recovery["kept"]
    return [
        ("lost", f"{lost} in batch {task.lost_batch}; {kept}, {again} again"),
        ("copied", copied),
        ("recovered", f"{recovery['values_apart']} values have other bits than in an undisturbed run"),
    ]
