"""TACCL plans as TACCL-EF XML or MSCCL++ plans: lowered, verified, and executed before they are written.

A runtime calls a plan with a communicator. Groups that share no rank, and forward nothing for each other, are
communicators of their own: ranks are numbered by their position, and the collective is the named one. Else the plan is
a collective of one's own among all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapless.array_types import Ids, Mask
from gapless.errors import GaplessError, InputError
from gapless.io import mscclpp
from gapless.io.formats.chakra import write_traces
from gapless.io.formats.collective_file import collective_data, collective_of
from gapless.io.formats.groups_file import groups_from
from gapless.io.taccl_ef import (
    MAX_SCRATCH_BYTES,
    RUNTIMES,
    LimitError,
    Program,
    lowered,
    run,
    runtime_for,
    served_placement,
    write_program,
)
from gapless.io.taccl_ef.program import NO_MAX_BYTES
from gapless.ir.collective import Collective
from gapless.ir.process_groups import Group
from gapless.ir.schedule import Ragged, Schedule
from gapless.ir.schedule_builder import no_collection
from gapless.ir.switch_ops import SwitchOps
from gapless.topologies.ports.switch_groups import SwitchGroup
from gapless.topologies.topology import Topology
from gapless.units import format_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gapless.io.plan import SavedPlan
    from gapless.io.taccl_ef import LoweringOptions

__all__ = [
    "Communicator", "Written", "collective_of", "communicators", "export_chakra", "export_mscclpp", "export_taccl_ef",
    "to_program", "topology_among", "write_each", "write_mscclpp", "write_taccl_ef",
]  # fmt: skip

Description = Mapping[str, object]
"""The section of a plan file that says what was asked."""

_OTHER = "custom"
"""What the runtimes call a collective that they have no name for."""


def to_program(schedule: Schedule, collective: Collective, **how: Unpack[LoweringOptions]) -> Program:
    """Lower a clean schedule (`how` goes to `lowered`) and execute the program with one message in flight.

    What ends with one also ends with more: a queue that holds more never makes a block wait. Without races the result
    is the same, too.

    Raises `InputError` where a limit of the runtime is exceeded, `GaplessError` if the execution finds a fault.
    """
    is_known = any(collective.name in each.names for each in RUNTIMES["both"])
    known = collective if is_known else replace(collective, name=_OTHER)
    runtime = how.get("runtime") or runtime_for(known.name)
    how["name"] = how.get("name") or f"{collective.name}_{collective.rank_count}"
    how["runtime"], how["placement"] = runtime, served_placement(how.get("placement"), collective.name, runtime)
    program, flat = lowered(schedule, known, **how)
    outcome = run(program, collective, slots=1, flat=flat)
    if not outcome.is_ok:
        raise GaplessError(f"taccl-ef: the lowered program fails its execution: {outcome.problems[0]}")
    return program


@dataclass(frozen=True)
class Written:
    """What an export wrote: `instances` of those that were asked for, fewer where `refusal` says why."""

    program: Program
    instances: int
    refusal: str = ""

    def summary(self) -> str:
        """One line."""
        program = self.program
        blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
        size = f"{program.ngpus} GPUs, {program.nchannels} channels, at most {blocks} thread blocks a GPU"
        calls = " and ".join(("out of place",) * program.outofplace + ("in place",) * program.inplace)
        line = f"{program.coll} on {size}, for calls {calls}"
        if program.max_bytes < NO_MAX_BYTES:
            line += f" of up to {format_bytes(program.max_bytes)}"
        if self.refusal:
            line += f"; {self.instances} instances, the most that fit: {self.refusal}"
        return line


def write_taccl_ef(
    path: Path | str, schedule: Schedule, description: Description, per_rank: bool = False,
    **how: Unpack[LoweringOptions],
) -> Written:  # fmt: skip
    """Write the XML of a plan, whole or not at all, with as many of the instances asked for as the runtime takes.

    `per_rank`: one file a rank; the others go to `lowered`.
    """
    collective, refusal = _described(schedule, description), ""
    for instances in range(how.get("instances", 1), 0, -1):
        how["instances"] = instances
        try:
            with no_collection():
                program = to_program(schedule, collective, **how)
        except LimitError as error:
            refusal = refusal or str(error)
            continue
        write_program(path, program, per_rank)
        return Written(program, instances, refusal)
    raise LimitError(refusal)


def write_mscclpp(
    path: Path | str, schedule: Schedule, description: Description, placement: str = "out-of-place",
    instances: int = 1, min_bytes: int = 0, max_bytes: int = 0, sm_count: int | None = None,
) -> mscclpp.Plan:  # fmt: skip
    """Write the MSCCL++ plan of a plan, whole or not at all, once it was executed.

    Raises `InputError` for what is not covered, `GaplessError` if the execution finds a fault.
    """
    plan = mscclpp.lower(
        schedule, _described(schedule, description), placement=placement, instances=instances, min_bytes=min_bytes,
        max_bytes=max_bytes, sm_count=sm_count,
    )  # fmt: skip
    problems = mscclpp.judge(plan).problems
    if problems:
        raise GaplessError(f"mscclpp: the lowered plan fails its execution: {problems[0]}")
    mscclpp.write_plan(path, plan)
    return plan


def _described(schedule: Schedule, description: Description) -> Collective:
    collective = collective_of(description, "plan")
    sizes = len(set(collective.chunk_sizes or ()))
    if sizes > 1:
        raise InputError(
            f"plan: problem: runtimes' files are for chunks of one size, {collective.name} has {sizes} sizes; "
            "write --format chakra, or run it with gapless run"
        )
    if collective.chunk_count != schedule.graph.tensor_count:
        raise InputError(
            f"plan: problem: {collective.name} over {collective.rank_count} ranks has {collective.chunk_count} chunks, "
            f"the schedule has {schedule.graph.tensor_count}"
        )
    return collective


@dataclass(frozen=True)
class Communicator:
    """What some ranks carry out, numbered by position: a schedule, and the problem section that goes with it."""

    ranks: tuple[int, ...]
    schedule: Schedule
    description: Description

    def is_like(self, other: Communicator) -> bool:
        """Whether both do the same, event by event."""
        mine, theirs = self.schedule, other.schedule
        return self.description == other.description and len(mine) == len(theirs) and all(
            np.array_equal(one, another)
            for one, another in zip(_events(mine), _events(theirs), strict=True)
        )  # fmt: skip


def communicators(schedule: Schedule, description: Description) -> list[Communicator]:
    """One for each group, or one of all ranks, in which the groups' collectives are one collective of its own."""
    whole = [Communicator(tuple(range(schedule.topology.device_count)), schedule, description)]
    if "groups" not in description:
        return whole
    groups = groups_from(description, "plan")
    if not groups.is_disjoint:
        return whole
    group_of = np.full(schedule.topology.device_count, -1)
    for number, group in enumerate(groups.groups):
        group_of[list(group.ranks)] = number
    ends = [group_of[end[schedule.place]] for end in (schedule.topology.link_source, schedule.topology.link_target)]
    if (ends[0] != ends[1]).any() or (ends[0] < 0).any():
        return whole
    parts, first = collective_of(description, "plan").chunks_per_rank, 0
    found = list[Communicator]()
    for number, (group, chunks) in enumerate(zip(groups.groups, groups.chunk_counts, strict=True)):
        found.append(_part(schedule, group, np.flatnonzero(ends[0] == number), chunks * parts, first))
        first += found[-1].schedule.graph.tensor_count
    return found


def write_each(
    path: str, schedule: Schedule, description: Description, write: Callable[[str, Schedule, Description], str]
) -> str:
    """A file for each communicator, or one where they all do the same; returns what they are, and which is whose.

    `write(path, schedule, description)` writes one, and says what it is.
    """
    found = communicators(schedule, description)
    if len(found) == 1:
        (only,) = found
        line = write(path, only.schedule, only.description)
        if "groups" not in description:
            return line
        if len(only.ranks) < schedule.topology.device_count:
            return f"{line}; for a communicator of {_named(only.ranks)}"
        return f"{line}; for a communicator of all {len(only.ranks)} ranks: groups share ranks, or others forward"
    if all(each.is_like(found[0]) for each in found[1:]):
        line = write(path, found[0].schedule, found[0].description)
        return f"{line}; one file for all {len(found)} communicators of {len(found[0].ranks)} ranks, which do the same"
    lines = []
    for number, each in enumerate(found):
        where = Path(path).with_name(f"{Path(path).stem}.group{number}{Path(path).suffix}")
        lines.append(f"{where}: {write(str(where), each.schedule, each.description)}; for {_named(each.ranks)}")
    return "\n".join([f"{len(found)} files, one for the communicator of each group", *lines])


def export_taccl_ef(
    path: str, plan: SavedPlan, max_scratch: int = MAX_SCRATCH_BYTES, per_rank: bool = False,
    **how: Unpack[LoweringOptions],
) -> str:  # fmt: skip
    """Write a plan as TACCL-EF, a file for each communicator; returns what was written.

    `max_scratch`: what the runtime may allocate on a GPU.
    """
    how["max_scratch_bytes"] = max_scratch

    def write(where: str, schedule: Schedule, description: Description) -> str:
        return write_taccl_ef(where, schedule, description, per_rank, **how).summary()

    return write_each(path, plan.schedule, plan.problem, write)


def export_mscclpp(
    path: str, plan: SavedPlan, proto: str, placement: str | None, instances: int, min_bytes: int, max_bytes: int,
    sm_count: int | None, **others: object,
) -> str:  # fmt: skip
    """Write a plan for MSCCL++, a file for each communicator; returns what was written.

    `others`: options of TACCL-EF that mean nothing here.
    """
    if proto != "Simple":
        raise InputError(f"proto: MSCCL++ plans are written with Simple, got {proto}")
    # A plan serves one placement; the default of TACCL-EF, both, is taken as the one that is always right to call.
    how = "in-place" if placement == "in-place" else "out-of-place", instances, min_bytes, max_bytes, sm_count

    def write(where: str, schedule: Schedule, description: Description) -> str:
        written = write_mscclpp(where, schedule, description, *how)
        blocks = max(len(gpu.threadblocks) for gpu in written.gpus)
        return f"{written.collective} on {len(written.gpus)} GPUs {how[0]}, at most {blocks} thread blocks a GPU"

    return write_each(path, plan.schedule, plan.problem, write)


def export_chakra(path: str, plan: SavedPlan) -> str:
    """Write a plan as Chakra traces, a file for each rank; returns what was written."""
    traces = write_traces(path, plan.schedule)
    count = sum(len(nodes) for nodes in traces)
    return f"{count} sends and receives in {len(traces)} files, {path}.RANK.et"


def _part(schedule: Schedule, group: Group, events: Ids, chunks: int, first: int) -> Communicator:
    """The events of one group, its chunks being numbered from `first` on."""
    collective, chunk_bytes = group.among_itself(chunks), int(schedule.graph.size_bytes[first])
    topology, place = topology_among(schedule.topology, group.ranks)
    description = {**collective_data(collective), "chunk_bytes": chunk_bytes, "topology": schedule.topology.name}
    moves = schedule.moves.take(events)
    some = replace(
        schedule,
        graph=collective.graph(chunk_bytes),
        topology=topology,
        kind=schedule.kind[events],
        start_s=schedule.start_s[events],
        end_s=schedule.end_s[events],
        place=place[schedule.place[events]],
        op=schedule.op[events],
        implementation=schedule.implementation[events],
        reduces=schedule.reduces[events],
        moves=Ragged(moves.start, moves.values - first),
        freed_tensor=schedule.freed_tensor.take(events),
        freed_device=schedule.freed_device.take(events),
        switch_ops=_switch_ops(schedule, group.ranks, events),
    )
    return Communicator(group.ranks, some, description)


def _switch_ops(schedule: Schedule, ranks: Sequence[int], events: Ids) -> SwitchOps | None:
    """The operations that some events are parts of, all of them among these ranks."""
    known = schedule.switch_ops
    if known is None:
        return None
    of_event, number = known.of_event[events], {old: new for new, old in enumerate(_switches(schedule.topology, ranks))}
    used = np.unique(of_event[of_event >= 0])
    numbers = np.array([number[which] for which in known.group[used].tolist()], dtype=np.int64)
    return SwitchOps(np.where(of_event < 0, -1, np.searchsorted(used, of_event)), numbers)


def _switches(topology: Topology, ranks: Sequence[int]) -> dict[int, SwitchGroup]:
    """By their numbers, the switch groups that some ranks can use by themselves, with these alone, newly numbered."""
    place, found = {rank: k for k, rank in enumerate(ranks)}, dict[int, SwitchGroup]()
    for number, group in enumerate(topology.switch_groups):
        kept = [k for k, rank in enumerate(group.ranks) if rank in place]
        if len(kept) == len(group.ranks) or (len(kept) > 1 and group.reduction.subsets):
            ports = tuple(group.ports[k] for k in kept) if group.ports else ()
            found[number] = replace(group, ranks=tuple(place[group.ranks[k]] for k in kept), ports=ports)
    return found


def topology_among(topology: Topology, ranks: Sequence[int]) -> tuple[Topology, Ids]:
    """Some ranks, in their order, and the links between them; and the new number of each link, -1 for others."""
    links, kept = topology.links_among(ranks)
    place = np.full(len(topology.links), -1)
    place[kept] = np.arange(len(kept))
    nodes = {node: k for k, node in enumerate(dict.fromkeys(topology.node_of_device[rank] for rank in ranks))}
    return Topology(
        name=topology.name,
        node_of_device=tuple(nodes[topology.node_of_device[rank]] for rank in ranks),
        links=links,
        resources=topology.resources,
        congestion=topology.congestion,
        switch_groups=tuple(_switches(topology, ranks).values()),
    ), place


def _events(schedule: Schedule) -> tuple[Ids | Mask, ...]:
    """What makes two schedules do the same, in order of the starts."""
    source, target = (end[schedule.place] for end in (schedule.topology.link_source, schedule.topology.link_target))
    order = np.lexsort((target, source, np.round(schedule.start_s, 12)))
    moves = schedule.moves.take(order)
    return source[order], target[order], schedule.reduces[order], moves.start, moves.values


def _named(ranks: tuple[int, ...]) -> str:
    if ranks == tuple(range(len(ranks))):
        return f"ranks 0-{len(ranks) - 1}"
    return f"ranks {', '.join(map(str, ranks[:16]))}{', ...' if len(ranks) > 16 else ''}"
