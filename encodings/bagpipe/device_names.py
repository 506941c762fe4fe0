"""What the devices of a lowered run are called, for people."""

from __future__ import annotations

from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["device_names"]


def device_names(topology: Topology) -> tuple[str, ...]:
    """The names of all devices, in the order of `gapless.encodings.bagpipe.lowering.Machine`.

    Raises `InputError` for a topology that is not of a lowered run.
    """
    trainers, rest = divmod(topology.device_count - 2, 2)
    if trainers < 1 or rest:
        rule = "must have the servers, the replicas, and two devices a trainer"
        raise InputError(f"topology {topology.name!r}: {rule}, got {topology.device_count} devices")
    workers = [f"trainer {number}" for number in range(trainers)]
    return ("servers", *workers, "replicas", *(f"input of {worker}" for worker in workers))
