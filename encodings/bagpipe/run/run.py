"""Run: the plans of batches one after the other, reduced to what trainers do, in a file that outlives the process.

Batches go to the file as they are planned (`store.py`). A run may end after any batch: what is cached then is written
back after its last use, which changes the evictions of the last L batches. In the file that stands apart
(`written_back`), so that the run can go on later as if it had never ended: its trace is looked through from the start,
with the partitions that the file holds, which makes again what the lookahead and the owners of rows have come to.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Mask
from gapless.encodings.bagpipe.batch_plans import BatchPlan, Budget, NoTimeLeftError, batch_plans
from gapless.encodings.bagpipe.cluster import capacities
from gapless.encodings.bagpipe.designs.counts import PLACES, Counts, evicted_parts, row_of
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.problem import Planning, Problem
from gapless.encodings.bagpipe.question import SHARDED
from gapless.encodings.bagpipe.run.file import head_of
from gapless.encodings.bagpipe.run.reader import RunFile
from gapless.encodings.bagpipe.run.store import WINDOW_ROWS, RunWriter, Salvaged, head_in, known_batches, salvaged
from gapless.encodings.bagpipe.run.window import Columns, KnownBatch, PlannedBatch, Window
from gapless.errors import InputError, Note
from gapless.io.arrays import meta_record
from gapless.io.reading import Limits, file_errors
from gapless.options import Deadline, Progress, SolveOptions
from gapless.units import format_count

__all__ = ["Begun", "Run", "begun", "begun_by", "plan_run", "share_of", "written_back"]


@dataclass
class Run:
    """What is known of all batches of a run beside what its file holds.

    `rows`: what `Counts` has of each batch. `measured`: what a partition costs, its bound, the largest load, NaN
    where unknown. `optimised`: how many batches have the partition that was asked for, not cut short. `is_whole`:
    whether the last batch is the last of the trace, or of those asked for.
    """

    writer: RunWriter
    planning: Planning
    rows: list[tuple[int, ...]] = field(default_factory=list)
    measured: list[tuple[float, ...]] = field(default_factory=list)
    optimised: int = 0
    is_whole: bool = False

    def take(self, plan: BatchPlan) -> None:
        """Add the plan of the next batch."""
        chosen = plan.partition
        bound = np.nan if chosen.bound is None else float(chosen.bound)
        measured = float(chosen.value), bound, float(plan.traffic.max_load)
        actions, counts = Actions.of(plan, self.planning.design), row_of(plan, self.planning.design)
        self.writer.add(PlannedBatch(actions.ids, plan.trainer, counts, measured, actions, chosen.is_cut))
        self._note(counts, measured, chosen.is_cut)

    def take_known(self, plan: BatchPlan, known: KnownBatch) -> None:
        """Go past a batch that is in the file already. Raises `InputError` where the trace has other ids."""
        if not np.array_equal(plan.step.ids, known.ids):
            rule = "must be those of the trace, aren't; is it made from another trace?"
            raise InputError(f"resume: ids of batch {plan.step.batch} {rule}")
        self._note(known.counts, known.measured, is_cut=False)

    def _note(self, counts: tuple[int, ...], measured: tuple[float, ...], is_cut: bool) -> None:
        self.rows.append(counts)
        self.measured.append(measured)
        self.optimised += not is_cut


def plan_run(
    run: Run, problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline, budget: Budget,
    known: Iterable[KnownBatch] = (),
) -> None:  # fmt: skip
    """Plan all batches, or those for which there is time; each is added to the run. `known`: the first ones, which are
    in the file already.
    """
    coming: list[KnownBatch] = []

    def partitions() -> Iterator[NDArray[np.int64]]:
        for batch in known:
            coming.append(batch)
            yield batch.trainer

    try:
        for plan in batch_plans(problem.trace, problem.planning, parameters, options, budget, partitions()):
            if coming:
                run.take_known(plan, coming.pop(0))
            else:
                run.take(plan)
            done, total = len(run.rows), problem.batch_count
            if options.on_progress is not None:
                options.on_progress(Progress(deadline.elapsed_s, None, None, "batches", done=done, total=total))
            if not budget.goes_on():
                run.is_whole = done == total
                return
    except NoTimeLeftError:
        return
    run.is_whole = True


def written_back(run: Run, file: RunFile) -> tuple[Counts, dict[int, Mask]]:
    """The counts of a run, and by batch the rows that its end evicts beside those that were planned to be."""
    evicted_at_end: dict[int, Mask] = {}
    if run.planning.design in SHARDED:  # rows lie where they belong
        return Counts.of(run.planning.trainers, run.rows), evicted_at_end
    rows, later, stays = list(run.rows), RowMap(), bool(run.planning.replicated)  # until the end
    for number in reversed(range(0 if run.is_whole and not stays else file.batches)):
        if number + rows[number][PLACES["lookahead"]] < file.batches and not stays:
            break  # whatever is cached then is used again before the end
        actions = file.actions(number)
        is_last = later.find(actions.ids) < 0
        later.add(actions.ids[is_last])
        evicted_at_end[number] = is_last & (actions.evicted == 0)
        evicted = (actions.evicted == 1) | is_last
        counts = list(rows[number])
        counts[PLACES["evicted"]] = int(evicted.sum())
        owned = actions.private_to[evicted & (actions.private_to >= 0)]
        counts[PLACES["evicted_most"]] = max(counts[PLACES["evicted_most"]], int(np.bincount(owned, minlength=1).max()))
        if run.planning.design == "lrpp-fine-grained":
            alone = actions.sync == 0
            parts = evicted_parts(evicted, alone, actions.private_to, actions.trainers)
            counts[PLACES["evicted_alone"] : PLACES["relayed"]] = parts
        rows[number] = tuple(counts)
    return Counts.of(run.planning.trainers, rows), evicted_at_end


def share_of(problem: Problem) -> NDArray[np.int64]:
    """The most examples of a batch that each trainer takes."""
    planning = problem.planning
    return capacities(planning.batch_size, planning.trainers, planning.shares)


@dataclass
class Begun:
    """A run in the making. `known`: the batches that its file has at first. `path`: of the file, None where nobody else
    can find it.
    """

    stream: IO[bytes]
    writer: RunWriter
    known: Iterator[KnownBatch]
    path: Path | None
    is_kept: bool = False

    def kept(self) -> IO[bytes]:
        """The file, which from now on belongs to the run."""
        self.is_kept = True
        return self.stream


@contextmanager
def begun(problem: Problem, path: Path | None) -> Iterator[Begun]:
    """The file of a run, empty or with what `problem.resume` holds; without a `path` it is in the temporary folder.

    Raises `InputError` where a run of another process is there, or `problem.resume` is of another question.
    """
    head = head_of(problem.description, problem.cluster, share_of(problem))
    resume, trainers = problem.resume, problem.cluster.trainers
    stream, before = (_new(path), None) if resume is None else _resumed(resume, path, head, trainers)
    writer = RunWriter(stream, before)
    if before is None:
        writer.write(head)
    limits = Limits.of_file(resume or "", stream)
    known = iter(()) if before is None else known_batches(stream, limits, before.end, trainers)
    begin = Begun(stream, writer, known, path)
    try:
        yield begin
    finally:
        if not begin.is_kept:
            writer.abandon()
            stream.close()
            if path is not None and not writer.batches:
                path.unlink(missing_ok=True)


def _new(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    try:
        return path.open("x+b")
    except FileExistsError:
        raise InputError(
            f"{path}: a run that has not ended is there: go on with it with --resume {path}, or remove it"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another path") from None


def _resumed(resume: str, path: Path | None, head: Columns, trainers: int) -> tuple[IO[bytes], Salvaged]:
    """The file with the windows of the one that is gone on with, which may be it itself, and what it holds."""
    is_same = path is not None and Path(resume).resolve() == path.resolve()

    def is_kept(first: int, columns: Columns) -> bool:
        """Windows that the whole run would have too: full, with the partitions that were asked for."""
        try:
            Window(first, columns, trainers)
        except InputError as error:
            raise InputError(f"{resume}: {error}") from None
        return int(columns["rows"].sum()) >= WINDOW_ROWS and not columns["is_cut"].any()

    with file_errors(resume):
        source = Path(resume).open("r+b" if is_same else "rb")  # noqa: SIM115 - may become the run's
    try:
        limits = Limits.of_file(resume, source)
        _check_question(resume, head_in(source, limits), head)
        before = salvaged(source, limits, is_kept)
        if before.ignored_bytes:
            warnings.warn(
                f"{resume}: {format_count(before.ignored_bytes)} bytes of an unfinished window are ignored",
                Note,
                stacklevel=2,
            )
        if is_same:
            source.truncate(before.end)
            return source, before
        stream = _new(path)
        source.seek(0)
        shutil.copyfileobj(source, stream)
        stream.truncate(before.end)
        source.close()
        return stream, before
    except BaseException:
        source.close()
        raise


def begun_by(resume: str) -> dict[str, object]:
    """By what the run in a file was asked for. Raises `InputError` for a file that is no run's."""
    with file_errors(resume), Path(resume).open("rb") as stream:
        meta = head_in(stream, Limits.of_file(resume, stream))
    if meta is None:
        raise _no_run(resume)
    problem = meta_record(meta, f"{resume}: meta").raw("problem")
    return problem if isinstance(problem, dict) else {}


def _no_run(resume: str) -> InputError:
    return InputError(f"{resume}: must be a run file to go on with, is none")


def _check_question(resume: str, meta: NDArray[np.number] | None, head: Columns) -> None:
    """The run is of this question: of more batches, too, the last that are there would be others."""
    if meta is None:
        raise _no_run(resume)
    was = meta_record(meta, f"{resume}: meta")
    asked = json.loads(head["meta"].tobytes())
    for section in ("problem", "cluster"):
        there = was.raw(section)
        for name, value in asked[section].items():
            got = there.get(name) if isinstance(there, dict) else None
            if got != value:
                raise InputError(f"{resume}: {name} must be the question's, {value!r}, to go on with it; got {got!r}")
    for name in ("format", "version", "share"):
        if (got := was.raw(name)) != asked[name]:
            raise InputError(f"{resume}: {name} must be {asked[name]!r} to go on with it; got {got!r}")
