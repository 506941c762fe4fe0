"""Recovery: what happens after a trainer is lost, as a schedule that the checker replays (section 5.2.4).

The others checkpoint their state, which is the dense parameters and the cache, each a slice of it; a trainer that was
newly started gets the slices, one after the other on its own network, and puts them together. All discard what they had
of the batch that was under way, and train it again. With a replicated cache nothing is fetched anew. Updates of rows
that were private to the lost trainer are lost, those of one batch at most: what must be there is everything else.
"""

from __future__ import annotations

import numpy as np

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.errors import InputError
from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import Event, EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Link, Topology

__all__ = ["recovery_schedule"]


def recovery_schedule(cluster: Cluster, cache_rows: int, batch: int, lost: int, checkpoint_s: float = 0.0) -> Schedule:
    """From the loss of a trainer in a batch to the end of that batch, trained again by all.

    Device k is trainer k, the lost one being the one that takes its place. `cache_rows`: that the cache holds then.
    `checkpoint_s`: until a trainer's slice is ready to be sent. Starting a machine isn't part of it.
    Raises `InputError` for a trainer that isn't there, for one that nobody is left to stand in for, and counts below 0.
    """
    trainers = cluster.trainers
    if not 0 <= lost < trainers or trainers < 2:
        raise InputError(f"lost: must be a trainer of at least two, in 0..{trainers - 1}, got {lost} of {trainers}")
    for title, value in (("cache_rows", cache_rows), ("batch", batch), ("checkpoint_s", checkpoint_s)):
        if not (np.isfinite(value) and value >= 0):
            raise InputError(f"{title}: must be finite and >= 0, got {value}")
    survivors = [trainer for trainer in range(trainers) if trainer != lost]
    state_bytes = cluster.dense_bytes + cache_rows * cluster.row_bytes
    sizes = np.diff(np.linspace(0, state_bytes, trainers).astype(np.int64)).tolist()
    before = (1 << batch) - 1  # the updates of all batches before this one, as bits
    builder = ScheduleBuilder(counts_contributions=True)
    state = builder.tensor("state", state_bytes)
    slices = [builder.tensor(f"slice of trainer {k}", size) for k, size in zip(survivors, sizes, strict=True)]
    copied = builder.tensor("copied state", state_bytes)
    trained, trained_by_new = builder.tensor("trained"), builder.tensor("trained by the new one")
    for part, trainer in zip(slices, survivors, strict=True):
        checkpoint = (Implementation(checkpoint_s),)
        op = Op(f"checkpoint {trainer}", (state,), (part,), checkpoint, needs={state: before})
        builder.run(op, trainer, 0.0, checkpoint_s)
    now_s = checkpoint_s
    for number, (part, size) in enumerate(zip(slices, sizes, strict=True)):
        end_s = now_s + cluster.latency_s + size / cluster.trainer_bytes_per_s
        builder.events.append(Event(EventKind.TRANSFER, now_s, end_s, number, moves=(part,)))
        now_s = end_s
    builder.run(Op("put together", tuple(slices), (copied,), (Implementation(0.0),)), lost, now_s, now_s)
    passes_s = sum(cluster.pass_s(float(cluster.pass_examples)))
    again = (Implementation(passes_s),)
    builder.ops += [
        Op(f"train {batch} again", (state,), (trained,), again, needs={state: before}),
        Op(f"train {batch} on the new one", (copied,), (trained_by_new,), again, needs={copied: before}),
    ]
    for trainer in range(trainers):
        op_number = len(survivors) + (2 if trainer == lost else 1)
        builder.events.append(Event(EventKind.COMPUTE, now_s, now_s + passes_s, trainer, op_number))
    builder.initial = [(state, trainer, before) for trainer in survivors]
    builder.required = [(trained, trainer, before) for trainer in survivors] + [(trained_by_new, lost, before)]
    topology, name = _topology(cluster, survivors, lost), f"recovery of trainer {lost}"
    return builder.schedule(topology, name, as_listed=True)


def _topology(cluster: Cluster, survivors: list[int], lost: int) -> Topology:
    """A link from each survivor to the new trainer, whose one network they share."""
    byte_s = 1 / cluster.trainer_bytes_per_s
    return Topology(
        name=f"{cluster.trainers} trainers, {lost} new",
        node_of_device=tuple(range(cluster.trainers)),
        links=tuple(Link(trainer, lost, cluster.latency_s, byte_s, (0,)) for trainer in survivors),
        resources=(f"network of trainer {lost}",),
        engines=tuple((trainer, "compute") for trainer in range(cluster.trainers)),
        memory_bytes=(np.inf,) * cluster.trainers,
    )
