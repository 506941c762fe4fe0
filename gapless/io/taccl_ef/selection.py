"""Which file a runtime takes for a call of a collective, and why none of the others.

The runtimes compare, file after file, what the file says with what the call is, and take the first that fits: the
executor goes by the names of the files in its folder, the original runtime by their order in its list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapless.errors import InputError
from gapless.io.formats.ef_options import DTYPE_BYTES
from gapless.io.taccl_ef.program import MAX_SCRATCH_BYTES, RUNTIMES, Problem, Program, Runtime
from gapless.io.taccl_ef.verify import verify

__all__ = ["Call", "Candidate", "Selection", "select"]

DIVIDED = frozenset({"allgather", "alltoall", "reducescatter"})
"""Collectives whose calls count the elements of one rank's part of the larger buffer."""


@dataclass(frozen=True)
class Call:
    """One call: `size_bytes` of the larger of a rank's two buffers; `in_place`: whether they are one memory.

    Raises `InputError` for a size that is no whole number of elements, of each rank where the buffer has parts.
    """

    collective: str
    size_bytes: int
    dtype: str
    ranks: int
    in_place: bool = False

    def __post_init__(self) -> None:
        parts = self.ranks if self.collective in DIVIDED else 1
        if self.size_bytes < 1 or self.size_bytes % (parts * DTYPE_BYTES[self.dtype]):
            unit = f"{parts} x {DTYPE_BYTES[self.dtype]} bytes of {self.dtype}"
            raise InputError(f"size: must be a multiple of {unit}, got {self.size_bytes}")

    @property
    def count(self) -> int:
        """Elements of the larger buffer."""
        return self.size_bytes // DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Candidate:
    """A file: its program, or why it can't be read (`refusal`)."""

    path: str
    program: Program | None
    refusal: str = ""


@dataclass(frozen=True)
class Selection:
    """What a runtime does with a call: `taken` is the place of the file in `tried`, None where no file fits.

    `tried`: the files in the runtime's order. `reasons`: for each, why it is not taken; None for the one that is.
    `stopped_by`: a file without which the runtime does not go on at all.
    """

    tried: tuple[Candidate, ...]
    taken: int | None
    reasons: tuple[Problem | None, ...]
    stopped_by: int | None = None


def select(
    candidates: Sequence[Candidate], call: Call, runtime: str, max_scratch_bytes: int = MAX_SCRATCH_BYTES
) -> Selection:
    """Go through the files as the runtime does. Raises `InputError` for a runtime that is none, or for both."""
    if len(RUNTIMES.get(runtime, ())) != 1:
        known = ", ".join(name for name, each in RUNTIMES.items() if len(each) == 1)
        raise InputError(f"runtime: must be one of {known}, got {runtime!r}")
    (model,) = RUNTIMES[runtime]
    tried = sorted(candidates, key=lambda each: Path(each.path).name) if model.by_name else list(candidates)
    reasons: list[Problem | None] = []
    kept, taken, stopped_by = 0, None, None
    for number, candidate in enumerate(tried):
        reason = _unloadable(candidate, call, model, max_scratch_bytes)
        if reason is not None and reason.rule == "load" and model.needs_all and stopped_by is None:
            stopped_by = number
        if reason is None:
            kept += 1
            if kept > model.programs:
                reason = Problem("programs", f"{model.title} keeps {model.programs} files, this is number {kept}")
        if reason is None and candidate.program is not None:
            reason = next(_mismatches(candidate.program, call, model), None)
        if reason is None:
            if taken is None:
                taken = number
            else:
                reason = Problem("order", f"it fits too, but {tried[taken].path} comes first")
        reasons.append(reason)
    if stopped_by is not None:
        taken, reasons = None, [each or Problem("load", f"{tried[stopped_by].path} stops it") for each in reasons]
    return Selection(tuple(tried), taken, tuple(reasons), stopped_by)


def _unloadable(candidate: Candidate, call: Call, runtime: Runtime, max_scratch_bytes: int) -> Problem | None:
    """Why a file is not among those that are compared with the call."""
    if candidate.program is None:
        return Problem("load", candidate.refusal)
    found = verify(candidate.program, runtime.name, max_scratch_bytes=max_scratch_bytes)
    if found:
        return Problem("load", str(found[0]))
    if not runtime.needs_all and candidate.program.ngpus != call.ranks:
        # The original runtime leaves such a file out when it loads, so that it isn't one of those that it keeps.
        return _other_ranks(candidate.program, call)
    return None


def _other_ranks(program: Program, call: Call) -> Problem:
    return Problem("ranks", f"it is for {program.ngpus} ranks, the communicator has {call.ranks}")


def _mismatches(program: Program, call: Call, runtime: Runtime) -> Iterator[Problem]:
    """What keeps a loaded file from being taken, in the order in which it is compared."""
    if program.ngpus != call.ranks:
        yield _other_ranks(program, call)
    name = runtime.names.get(call.collective)
    if name == "custom":
        yield Problem("collective", f"{runtime.title} has no call for {call.collective}, custom files go by number")
    elif program.coll != name:
        yield Problem(
            "collective", f"it is for {program.coll}, {call.collective} is {name or 'unknown'} to {runtime.title}"
        )
    if call.collective == "alltoall" and call.in_place and not runtime.reads_outofplace:
        yield Problem("placement", f"{runtime.title} refuses ALLTOALL in place")
    outofplace = program.outofplace if runtime.reads_outofplace else not program.inplace
    if not (program.inplace if call.in_place else outofplace):
        placement = "in" if call.in_place else "out of"
        yield Problem(
            "placement", f"it has inplace {program.inplace:d}, outofplace {program.outofplace:d}: not {placement} place"
        )
    if call.size_bytes < program.min_bytes:
        yield Problem("size", f"minBytes is {program.min_bytes}, the call has {call.size_bytes}")
    most = program.max_bytes
    is_below = call.size_bytes <= most or most == 0 if runtime.includes_max else call.size_bytes < most
    if not is_below:
        edge = "" if runtime.includes_max else " (excluded)"
        yield Problem("size", f"maxBytes is {most}{edge}, the call has {call.size_bytes}")
    if call.count % program.nchunksperloop:
        message = (
            f"the larger buffer's {call.count} elements are no multiple of nchunksperloop {program.nchunksperloop}"
        )
        yield Problem("count", message)
