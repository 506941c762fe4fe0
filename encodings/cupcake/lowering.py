"""From a fusion to a schedule in the graph IR: one representative worker with a compute stream and a network.

Forward, backward gradient by gradient, and encoding run on the compute stream; collectives on the network; decoding on
an engine of its own, one group after the other, as soon as the collective is over. Where the question charges decoding
before the send, it is part of encoding, and takes no time at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gapless.graph import Graph, Implementation, Op, Placement
from gapless.profiles.gradients.fusion import Costs, Fusion, Timeline, timeline
from gapless.profiles.gradients.profile import FusionProfile
from gapless.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Topology

__all__ = ["COMPUTE", "DECODE", "NETWORK", "to_schedule"]

COMPUTE, NETWORK, DECODE = 0, 1, 2
"""The engines of the worker."""


@dataclass
class _Rows:
    """Ops and the event of each, in the making."""

    ops: list[Op] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def run(
        self, name: str, kind: str, engine: int, start_s: float, duration_s: float,
        reads: tuple[int, ...], writes: tuple[int, ...], frees: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """One op, and the event that runs it."""
        self.ops.append(Op(name, reads, writes, (Implementation(duration_s),), kind))
        event_kind = EventKind.COLLECTIVE if engine == NETWORK else EventKind.COMPUTE
        gone = tuple((tensor, 0) for tensor in frees)
        self.events.append(Event(event_kind, start_s, start_s + duration_s, engine, len(self.ops) - 1, frees=gone))


def to_schedule(profile: FusionProfile, costs: Costs, fusion: Fusion) -> Schedule:
    """One training step, each group as early as the stream and the network allow.

    Tensors: the gradients 0..N-1, the synchronised gradients N..2N-1, which are required at the end, the activations,
    and for each group what is sent and what arrives, until it is sent and decoded. What arrives of a gathered group is
    the messages of all ranks; the other sizes are before compression, so that no ratio is needed.
    """
    times = timeline(costs, fusion)
    count, groups = profile.tensor_count, fusion.groups
    size_bytes = [*profile.size_bytes.tolist(), *profile.size_bytes.tolist(), 0]
    names = [*profile.tensor_names, *(f"synchronised {name}" for name in profile.tensor_names), "activations"]
    for number, (first, last) in enumerate(groups):
        group_bytes = int(profile.size_bytes[first : last + 1].sum())
        size_bytes += [group_bytes, round(group_bytes * profile.mode(fusion.modes[number]).gathered) or group_bytes]
        names += [f"sent {number}", f"received {number}"]
    rows = _Rows()
    activations = 2 * count
    rows.run("forward", "forward", COMPUTE, 0.0, profile.forward_s, (), (activations,))
    for number, (first, last) in enumerate(groups):
        _backward(rows, profile, times, number, range(first, last + 1))
        _synchronise(rows, profile, times, number, range(first, last + 1))
    required = Placement.of([(count + k, 0) for k in range(count)])
    graph = Graph(np.array(size_bytes, dtype=np.int64), tuple(rows.ops), required=required, tensor_names=tuple(names))
    topology = Topology("worker", (0,), engines=((0, "compute"), (0, "network"), (0, "decode")))
    return schedule_from_events(graph, topology, rows.events, f"{profile.name} in {len(groups)} groups")


def _backward(rows: _Rows, profile: FusionProfile, times: Timeline, number: int, group: range) -> None:
    """The group's gradients one after the other, right after the group before it was compressed."""
    activations = 2 * profile.tensor_count
    at_s = profile.forward_s
    if number:
        at_s += float(times.compressed_s[number - 1])
    for k in group:
        duration_s = float(profile.backward_s[k])
        rows.run(f"backward {profile.tensor_names[k]}", "backward", COMPUTE, at_s, duration_s, (activations,), (k,))
        at_s += duration_s


def _synchronise(rows: _Rows, profile: FusionProfile, times: Timeline, number: int, group: range) -> None:
    """Encode, collective and decode of one group."""
    count, forward_s = profile.tensor_count, profile.forward_s
    sent = 2 * count + 1 + 2 * number
    compress_s, send_s = float(times.compress_s[number]), float(times.send_s[number])
    encoding_s = forward_s + float(times.compressed_s[number]) - compress_s
    sending_s = forward_s + float(times.sending_s[number])
    synchronised = tuple(count + k for k in group)
    rows.run(f"encode {number}", "encode", COMPUTE, encoding_s, compress_s, tuple(group), (sent,))
    rows.run(f"collective {number}", "collective", NETWORK, sending_s, send_s, (sent,), (sent + 1,), (sent,))
    decode_s = float(times.decode_s[number])
    decoding_s = forward_s + float(times.decoded_s[number]) - decode_s
    rows.run(f"decode {number}", "decode", DECODE, decoding_s, decode_s, (sent + 1,), synchronised, (sent + 1,))
