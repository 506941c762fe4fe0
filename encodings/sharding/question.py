"""What is asked of sharding: an instance, whose nodes each take one of their choices."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.profiles.devices import device_names
from gapless.profiles.layouts.published import AUTOPARALLEL, BASELINES
from gapless.profiles.shardings.autoparallel import SHIPPED
from gapless.question import Asked, asked
from gapless.question.fields import Choice, Flag, Listed, Object, Size, Text, Whole
from gapless.topologies.names import topology_names

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.encodings.sharding.instances.instance import Instance
    from gapless.profiles.devices import Device
    from gapless.topologies.topology import Topology
    from gapless.torch.run.workload import Workload

__all__ = ["BEST", "OPTIMIZERS", "Question"]

BEST = "best"
"""The method that searches."""

OPTIMIZERS = {"adam": 8, "momentum": 4, "sgd": 0}
"""With the bytes that each keeps for a number that is trained, in 32 bits."""
_MODEL = "model on a mesh"


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """A choice for each node of an instance, such that all of them together cost least within the memory.

    `instance`: a file of the ASPLOS 2025 contest, the words of a drawn one, the name of a shipped one, or the instance.
    Or a `model` on a mesh: layouts of the tensors of a training step.
    """

    instance: str | Path | Instance | None = asked(
        Object(("gapless.encodings.sharding.instances.instance.Instance",)),
        "an instance as the ASPLOS 2025 contest has it (.json, .json.gz), drawn:nodes=200,seed=1, or "
        f"{' or '.join(SHIPPED)}",
        metavar="FILE",
    )
    _: KW_ONLY
    model: str | Workload | None = asked(
        Object(("gapless.torch.run.workload.Workload",)),
        "instead of --instance: MODULE:FACTORY or FILE.py:FACTORY, a function that returns (model, inputs, loss, "
        "targets); options as in train:gpt,layers=4", metavar="NAME", group=_MODEL, extra="torch",
    )  # fmt: skip
    mesh: tuple[int, ...] | None = asked(
        Listed(Whole(1, 2**16), "x"), "devices along each axis of the mesh, such as 2x4", metavar="AxB", group=_MODEL
    )
    topology: str | Topology | None = asked(
        Object(("gapless.topologies.topology.Topology",)), "the machine; the mesh is its first devices, row by row",
        metavar="NAME", names=topology_names, group=_MODEL,
    )  # fmt: skip
    topology_file: str | None = asked(
        Text(), "a topology in a file, as `gapless profile links` measures it", metavar="FILE",
        group=_MODEL,
    )  # fmt: skip
    nodes: int | None = asked(Whole(1, 10**6), "number of the topology's nodes", otherwise=1, metavar="N", group=_MODEL)
    device: str | Device = asked(
        Object(("gapless.profiles.devices.Device",)), "device by which compute is timed", "h100", metavar="NAME",
        names=device_names, group=_MODEL,
    )  # fmt: skip
    memory: int | None = asked(
        Size(), "memory of each device, such as 40GB", otherwise="the device's", metavar="SIZE", group=_MODEL
    )
    optimizer: str = asked(
        Choice(tuple(OPTIMIZERS)), "whose state is kept for each parameter: adam, momentum, sgd", "adam", group=_MODEL
    )
    unequal_layers: bool = asked(Flag(), "let equal layers have different layouts", False, group=_MODEL)
    method: str = asked(
        Choice((BEST, *BASELINES, AUTOPARALLEL)),
        f"what decides: the search; a published layout: {', '.join(BASELINES)}; or {AUTOPARALLEL}, its integer program",
        BEST, metavar="NAME", group=_MODEL,
    )  # fmt: skip
