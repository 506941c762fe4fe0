"""Where a run grows: in a file that outlives the process if it is killed, and in which another one may go on with it.

Going on with a run looks through its trace from the start, with the partitions that the file holds: what the lookahead
and the owners of rows have come to by then is made again, and the rest of the run is as if it had never ended.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.partition.batch import capacities
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.run.file import head_of
from gapless.encodings.bagpipe.run.store import (
    WINDOW_ROWS,
    Columns,
    KnownBatch,
    RunWriter,
    Salvaged,
    head_in,
    known_batches,
    salvaged,
)
from gapless.encodings.bagpipe.run.window import Window
from gapless.errors import InputError, Note
from gapless.io.arrays import meta_record
from gapless.io.reading import Limits, file_errors

__all__ = ["Begun", "begun", "share_of"]


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
                f"{resume}: {before.ignored_bytes} bytes of an unfinished window are ignored", Note, stacklevel=2
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


def _check_question(resume: str, found: NDArray[Any] | None, head: Columns) -> None:
    """The run is of this question: of more batches, too, the last that are there would be others."""
    if found is None:
        raise InputError(f"{resume}: must be a run file to go on with, is none")
    was = meta_record(found, f"{resume}: meta")
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
