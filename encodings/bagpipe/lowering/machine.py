"""Machine: the devices, engines and links that a run is lowered to; and a schedule in the making on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.sharding import shard_of
from gapless.errors import InputError
from gapless.profiles.traces.trace import TABLE_SHIFT
from gapless.topologies.topology import Link, Topology

__all__ = ["FETCH_ALL", "SERVERS", "WRITE_ALL", "Machine", "device_names"]

SERVERS = 0
"""The device of the embedding servers."""
FETCH_ALL, WRITE_ALL = 0, 1
"""Links between the servers and the replicas."""
_LINKS = ("fetch", "write", "claim", "ready", "load", "go")
"""Links of each trainer: from and to the servers, from and to the replicas, into and out of its buffer."""


@dataclass(frozen=True)
class Machine:
    """Numbers of devices, engines and links for p trainers, and the topology that they make.

    `share`: the most examples that each trainer takes of a batch, int64, shape (p,). `cache_rows`: distinct rows that
    the cache holds. `sharding`: how tables are cut that lie on the trainers, of `SHARDED`, with the number of `tables`;
    empty if they lie on the servers: then there is a cache. `gradient_bytes`: what each trainer has for gradients of
    rows; None where they aren't counted.
    """

    cluster: Cluster
    share: Ints
    cache_rows: int
    sharding: str = ""
    tables: int = 0
    gradient_bytes: int | None = None

    def device_of(self, ids: Ints) -> Ints:
        """The device on which each row lies at first, and must lie at the end."""
        if not self.sharding:
            return np.full(len(ids), SERVERS)
        if len(ids) and (table := int(ids.max()) >> TABLE_SHIFT) >= self.tables:
            raise InputError(f"ids: must be of tables 0..{self.tables - 1}, got one of table {table}")
        return shard_of(ids, self.cluster.trainers, self.sharding) + self.trainer(0)

    @property
    def replicas(self) -> int:
        """The device of the rows that all trainers hold."""
        return self.cluster.trainers + 1

    def trainer(self, number: int) -> int:
        """A trainer's device and engine."""
        return number + 1

    def buffer(self, number: int) -> int:
        """A trainer's input buffer, device and engine."""
        return self.cluster.trainers + 2 + number

    def gradients(self, number: int) -> int:
        """What a trainer has for gradients, device and engine, where they are counted."""
        return 2 * self.cluster.trainers + 2 + number

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return (2 if self.gradient_bytes is None else 3) * self.cluster.trainers + 2

    @property
    def all_reduce(self) -> int:
        """The engine of the collectives: the trainers' network."""
        return self.device_count

    def network(self, start_s: float, end_s: float) -> int:
        """The engine of a collective between these times; one that takes no time doesn't hold the network."""
        return self.all_reduce if end_s > start_s else self.replicas

    def link(self, kind: str, number: int = 0) -> int:
        """A link by what it is for; `number`: of the trainer."""
        return 2 + len(_LINKS) * number + _LINKS.index(kind)

    def place_link(self, fetch_link: int) -> int:
        """The link that keeps a place among the replicas for what a trainer's link fetches."""
        return fetch_link + _LINKS.index("ready") - _LINKS.index("fetch")

    def per_byte_s(self, link: int) -> float:
        """Of a link from or to the servers. A row for all trainers goes to each, but is written back by all together.

        Of colocated servers each trainer gets its copy at once with the others, and writes its own slice.
        """
        byte_s, own = self.cluster.server_byte_s, self.cluster.placement == "colocated"
        return byte_s * {FETCH_ALL: 1 if own else self.cluster.trainers, WRITE_ALL: 0 if own else 1}.get(link, 1)

    def topology(self) -> Topology:
        """Links from and to servers hold the networks of all that carry a part; those inside a trainer cost nothing.

        Servers apart from trainers take turns, each way, with what the trainers want; colocated ones are the trainers.
        What costs nothing holds nothing.
        """
        cluster, trainers = self.cluster, self.cluster.trainers
        machines, own = tuple(range(cluster.servers)), cluster.placement == "colocated"
        out, back = machines, tuple(number + len(machines) for number in machines)
        links = [
            Link(source, target, 0.0, byte_s, held if byte_s else ())
            for source, target, byte_s, held in (
                (SERVERS, self.replicas, self.per_byte_s(FETCH_ALL), out),
                (self.replicas, SERVERS, self.per_byte_s(WRITE_ALL), back),
            )
        ]
        for number in range(trainers):
            here, buffer = self.trainer(number), self.buffer(number)
            links += [
                Link(SERVERS, here, 0.0, cluster.server_byte_s, (out[number],) if own else out),
                Link(here, SERVERS, 0.0, cluster.server_byte_s, (back[number],) if own else back),
                Link(self.replicas, here, 0.0, 0.0),
                Link(here, self.replicas, 0.0, 0.0),
                Link(SERVERS, buffer, 0.0, 0.0),
                Link(buffer, here, 0.0, 0.0),
            ]
        devices = self.device_count
        memory = [np.inf] * (trainers + 1) + [self.cache_rows * cluster.row_bytes, *self.share.tolist()]
        memory += [self.gradient_bytes or 0] * (devices - len(memory))
        engines = [(device, "compute") for device in range(devices)]
        return Topology(
            name=f"{trainers} trainers and {cluster.servers} embedding servers",
            node_of_device=tuple(range(devices)),
            links=tuple(links),
            resources=tuple(f"server {number} {direction}" for direction in ("out", "in") for number in machines),
            engines=(*engines, (self.replicas, "all-reduce")),
            memory_bytes=tuple(memory),
        )


def device_names(topology: Topology) -> tuple[str, ...]:
    """What people call the devices of a `Machine`. Raises `InputError` for a topology that is not of a lowered run."""
    trainers = _trainers(topology)
    if topology.device_count not in (2 * trainers + 2, 3 * trainers + 2):
        rule = "must have the servers, the replicas, and two or three devices a trainer"
        raise InputError(f"topology {topology.name!r}: {rule}, got {topology.device_count} devices")
    workers = [f"trainer {number}" for number in range(trainers)]
    names = ("servers", *workers, "replicas", *(f"input of {worker}" for worker in workers))
    return (*names, *(f"gradients of {worker}" for worker in workers))[: topology.device_count]


def _trainers(topology: Topology) -> int:
    """Those that a `Machine` has; each has links of its own."""
    return (len(topology.links) - 2) // len(_LINKS)


def budgets(topology: Topology, planned: Mapping[str, object], run: Mapping[str, object]) -> tuple[float, ...]:
    """The bytes that the question allows each device: those of the cache, where it was asked for, and of gradients. A
    plan of another design than was asked for may have a cache of its own, so that the question is read, where `run`
    holds it.
    """
    trainers = _trainers(topology)
    limited = (trainers + 1, *range(2 * trainers + 2, topology.device_count))
    question = run.get("question")
    fields = question.get("fields") if isinstance(question, Mapping) else None
    asked = fields if isinstance(fields, Mapping) else planned
    is_asked = any(asked.get(name) is not None for name in ("cache_rows", "memory"))
    return tuple(
        size if is_asked and device in limited else np.inf for device, size in enumerate(topology.memory_bytes)
    )
