"""From a fusion to a schedule in the graph IR: one representative worker with a compute stream and a network.

Forward, backward gradient by gradient, and encoding run on the compute stream; collectives on the network; decoding on
an engine of its own, one group after the other, as soon as the collective is over. Where the question charges decoding
before the send, it is part of encoding, and takes no time at the end. Where cores are counted, they are an engine more:
it has what each group takes of the processors, its backward pass included, over the cores.
"""

from __future__ import annotations

import numpy as np

from gapless.ir.schedule import EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.profiles.gradients.fusion import Costs, Fusion, Timeline, timeline
from gapless.profiles.gradients.profile import FusionProfile
from gapless.topologies.topology import Topology

__all__ = ["COMPUTE", "CORES", "DECODE", "NETWORK", "to_schedule"]

COMPUTE, NETWORK, DECODE, CORES = 0, 1, 2, 3
"""The engines of the worker."""


def to_schedule(profile: FusionProfile, costs: Costs, fusion: Fusion) -> Schedule:
    """One training step, each group as early as the stream and the network allow.

    Tensors: the gradients 0..N-1, the synchronised gradients N..2N-1, which are required at the end, the activations,
    and for each group what is sent and what arrives, until it is sent and decoded. What arrives of a gathered group is
    the messages of all ranks; the other sizes are before compression, so that no ratio is needed.
    """
    times = timeline(costs, fusion)
    count, groups = profile.tensor_count, fusion.groups
    builder = ScheduleBuilder()
    for prefix in ("", "synchronised "):
        for name, size in zip(profile.tensor_names, profile.size_bytes.tolist(), strict=True):
            builder.tensor(f"{prefix}{name}", size)
    activations = builder.tensor("activations")
    for number, (first, last) in enumerate(groups):
        group_bytes = int(profile.size_bytes[first : last + 1].sum())
        builder.tensor(f"sent {number}", group_bytes)
        gathered = profile.mode(fusion.modes[number]).gathered
        builder.tensor(f"received {number}", round(group_bytes * gathered) or group_bytes)
    builder.compute("forward", "forward", COMPUTE, 0.0, profile.forward_s, (), (activations,))
    for number, (first, last) in enumerate(groups):
        _backward(builder, profile, times, number, range(first, last + 1))
        _synchronise(builder, profile, times, number, range(first, last + 1))
    engines = ["compute", "network", "decode"]
    if costs.cores:
        _work(builder, profile.forward_s, times, costs.cores, activations)
        engines.append("cores")
    builder.required += [(count + k, 0, 0) for k in range(count)]
    topology = Topology("worker", (0,), engines=tuple((0, name) for name in engines))
    return builder.schedule(topology, f"{profile.name} in {len(groups)} groups", as_listed=True)


def _backward(builder: ScheduleBuilder, profile: FusionProfile, times: Timeline, number: int, group: range) -> None:
    """The group's gradients one after the other, right after the group before it was compressed."""
    activations = 2 * profile.tensor_count
    at_s = profile.forward_s
    if number:
        at_s += float(times.compressed_s[number - 1])
    for k in group:
        duration_s = float(profile.backward_s[k])
        name = f"backward {profile.tensor_names[k]}"
        builder.compute(name, "backward", COMPUTE, at_s, duration_s, (activations,), (k,))
        at_s += duration_s


def _synchronise(builder: ScheduleBuilder, profile: FusionProfile, times: Timeline, number: int, group: range) -> None:
    """Encode, collective and decode of one group."""
    count, forward_s = profile.tensor_count, profile.forward_s
    sent = 2 * count + 1 + 2 * number
    compress_s, send_s = float(times.compress_s[number]), float(times.send_s[number])
    encoding_s = forward_s + float(times.compressed_s[number]) - compress_s
    sending_s = forward_s + float(times.sending_s[number])
    synchronised = tuple(count + k for k in group)
    builder.compute(f"encode {number}", "encode", COMPUTE, encoding_s, compress_s, group, (sent,))
    builder.compute(
        f"collective {number}", "collective", NETWORK, sending_s, send_s, (sent,), (sent + 1,), ((sent, 0),),
        event=EventKind.COLLECTIVE,
    )  # fmt: skip
    decode_s = float(times.decode_s[number])
    decoding_s = forward_s + float(times.decoded_s[number]) - decode_s
    builder.compute(
        f"decode {number}", "decode", DECODE, decoding_s, decode_s, (sent + 1,), synchronised, ((sent + 1, 0),)
    )


def _work(builder: ScheduleBuilder, forward_s: float, times: Timeline, cores: float, activations: int) -> None:
    """What each group takes of the processors, over the cores: a lower bound of when all of it can be done."""
    durations_s = (np.diff(times.ready_s, prepend=0.0) + times.work_s) / cores
    ends_s = forward_s + np.cumsum(durations_s)
    for number, (end_s, duration_s) in enumerate(zip(ends_s.tolist(), durations_s.tolist(), strict=True)):
        builder.compute(f"work {number}", "work", CORES, end_s - duration_s, duration_s, (activations,), ())
