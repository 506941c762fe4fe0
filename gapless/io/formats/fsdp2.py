"""How FSDP2 wraps a model by a plan: groups of layers, what each keeps, and what it gathers ahead.

JSON, format `gapless.fsdp2`, version 1; layers stand in order of use::

    {"format": "gapless.fsdp2", "version": 1, "profile": "tiny", "torch": "2.13.0", "assumes": ["..."],
     "layers": [{"name": "embedding", "parameters": 4096}, {"name": "0", "parameters": 1024},
                {"name": "head", "parameters": 1024}],
     "scatters_in_flight": 1,
     "groups": [{"layers": ["embedding"], "reshard_after_forward": true, "gather": "bf16", "scatter": "fp32",
                 "forward_prefetch": ["0"], "backward_prefetch": []},
                {"layers": ["0", "head"], "reshard_after_forward": false, "gather": "bf16", "scatter": "fp32",
                 "forward_prefetch": [], "backward_prefetch": ["embedding"]}],
     "torchtitan_buckets": [["embedding"], ["0", "head"]]}

A group is one call of `fully_shard`. `forward_prefetch`, `backward_prefetch`: the groups, by their first layers, that
are gathered as soon as this one's pass begins. `gather`, `scatter`: `param_dtype` and `reduce_dtype` of its
`MixedPrecisionPolicy`. `sharding`: full; secondary, for `reshard_after_forward` of the number
`ranks_per_node`; hybrid, for a mesh of nodes by `ranks_per_node`, whose second dimension is sharded over.
`scatters_in_flight`: of `set_reduce_scatter_max_input_buffers`. `torchtitan_buckets`: what
torchtitan's passes over graphs take for buckets that are set by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import load_record
from gapless.io.typed import Stored, located, read_record, text_of

__all__ = ["ASSUMES", "PRECISIONS", "SHARDINGS", "Fsdp2Group", "Fsdp2Wrapping", "read_fsdp2", "write_fsdp2"]

_FORMAT, _VERSION = "gapless.fsdp2", 1
_CHECKED_WITH_TORCH = "2.13.0"
PRECISIONS = ("fp32", "bf16")
"""In which FSDP2 gathers and scatters."""
SHARDINGS = ("full", "secondary", "hybrid")
"""Over all ranks; the same, with secondary shards over the ranks of a node from the forward pass to the backward pass;
over the ranks of a node, with a replica in each node."""

ASSUMES = (
    "torch 2.13 or newer: fully_shard of lists of modules, set_reduce_scatter_max_input_buffers",
    "layers run once in a step, in this order, and no two share a parameter",
    "a group with an empty backward_prefetch has itself in set_modules_to_backward_prefetch: FSDP2 gathers the group "
    "before it otherwise",
    "a GPU is given its work ahead of time: there a group's gather starts with the pass before it, if it isn't earlier",
)


@dataclass(frozen=True)
class Fsdp2Group:
    """Layers `first` to `last`, both inclusive, of one call of `fully_shard`. `kept`: not resharded after the forward
    pass. `sharding`: of `SHARDINGS`. `gather`, `scatter`: of `PRECISIONS`. `forward_prefetch`, `backward_prefetch`:
    groups that are gathered, in this order, when the pass of this one begins.
    """

    first: int
    last: int
    kept: bool
    gather: str
    scatter: str
    forward_prefetch: tuple[int, ...] = ()
    backward_prefetch: tuple[int, ...] = ()
    sharding: str = "full"


@dataclass(frozen=True)
class Fsdp2Wrapping:
    """How a model is wrapped. `layer_names`, `parameters`: of each layer, in order of use; how many it has.
    `scatters_in_flight`: how many scatters may be under way when another group's gradients are ready. `ranks_per_node`:
    over which groups are sharded that aren't over all ranks.

    Raises `InputError` where groups don't cut the layers into consecutive parts, for a precision that FSDP2 hasn't, and
    for groups that don't exist.
    """

    profile: str
    layer_names: tuple[str, ...]
    parameters: tuple[int, ...]
    groups: tuple[Fsdp2Group, ...]
    scatters_in_flight: int = 1
    ranks_per_node: int = 1

    def __post_init__(self) -> None:
        if len(set(self.layer_names)) < len(self.layer_names):
            raise InputError("layers: names must differ")
        bounds = [(-1, -1), *((group.first, group.last) for group in self.groups)]
        for number, (before, (first, last)) in enumerate(pairwise(bounds)):
            if first != before[1] + 1 or last < first:
                raise InputError(f"groups[{number}]: must begin with layer {before[1] + 1}, got {first} to {last}")
        if bounds[-1][1] != len(self.layer_names) - 1:
            raise InputError(f"groups: must end with the last of {len(self.layer_names)} layers, got {bounds[-1][1]}")
        for number, group in enumerate(self.groups):
            for title in ("gather", "scatter"):
                if getattr(group, title) not in PRECISIONS:
                    rule = f"FSDP2 has {' and '.join(PRECISIONS)}, got {getattr(group, title)}"
                    raise InputError(f"groups[{number}]: {title}: {rule}; solve without it, see --{title}")
            if group.sharding not in SHARDINGS:
                raise InputError(f"groups[{number}]: sharding: must be one of {', '.join(SHARDINGS)}")
            if group.sharding != "full" and self.ranks_per_node < 2:
                raise InputError(f"groups[{number}]: sharding: {group.sharding} goes with ranks_per_node above 1")
            if group.sharding == "secondary" and group.kept:
                raise InputError(f"groups[{number}]: sharding: secondary goes with reshard_after_forward")
            if not set(group.forward_prefetch + group.backward_prefetch) <= set(range(len(self.groups))):
                raise InputError(f"groups[{number}]: gathers a group ahead that there isn't")

    @property
    def buckets(self) -> tuple[tuple[str, ...], ...]:
        """Names of each group's layers."""
        return tuple(self.layer_names[group.first : group.last + 1] for group in self.groups)


@dataclass(frozen=True)
class _Layer:
    name: str
    parameters: Annotated[int, Stored(0)]


@dataclass(frozen=True)
class _Group:
    layers: Annotated[tuple[str, ...], Stored(is_filled=True)]
    reshard_after_forward: bool
    gather: str
    scatter: str
    forward_prefetch: tuple[str, ...]
    backward_prefetch: tuple[str, ...]
    sharding: str = "full"


@dataclass(frozen=True)
class _File:
    profile: str
    layers: Annotated[tuple[_Layer, ...], Stored(is_filled=True)]
    groups: Annotated[tuple[_Group, ...], Stored(is_filled=True)]
    scatters_in_flight: Annotated[int, Stored(1)] = 1
    ranks_per_node: Annotated[int, Stored(1)] = 1
    torch: str = ""
    assumes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Written(_File):
    torchtitan_buckets: tuple[tuple[str, ...], ...] = ()


def write_fsdp2(path: str | Path, wrapping: Fsdp2Wrapping) -> None:
    """Write a wrapping, whole or not at all."""
    buckets = wrapping.buckets

    def first_of(groups: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(buckets[group][0] for group in groups)

    file = _Written(
        wrapping.profile,
        tuple(map(_Layer, wrapping.layer_names, wrapping.parameters)),
        tuple(
            _Group(names, not group.kept, group.gather, group.scatter, first_of(group.forward_prefetch),
                   first_of(group.backward_prefetch), group.sharding)
            for names, group in zip(buckets, wrapping.groups, strict=True)
        ),
        wrapping.scatters_in_flight, wrapping.ranks_per_node, _CHECKED_WITH_TORCH, ASSUMES, buckets,
    )  # fmt: skip
    write_text(path, text_of(file, _FORMAT, _VERSION, ["layers", "groups"]))


def read_fsdp2(path: str | Path) -> Fsdp2Wrapping:
    """The wrapping in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    record = load_record(path)
    record.of_format(_FORMAT, _VERSION)
    buckets = record.array("torchtitan_buckets", default=None)
    file = read_record(_File, record)
    names = tuple(layer.name for layer in file.layers)
    group_of = {group.layers[0]: number for number, group in enumerate(file.groups)}
    with located(str(path)):
        if [name for group in file.groups for name in group.layers] != list(names):
            raise InputError("groups: must have all layers, in their order")
        if buckets not in (None, [list(group.layers) for group in file.groups]):
            raise InputError("torchtitan_buckets: must be the groups' layers")
        groups, first = list[Fsdp2Group](), 0
        for number, group in enumerate(file.groups):
            ahead = []
            for title in ("forward_prefetch", "backward_prefetch"):
                unknown = [name for name in getattr(group, title) if name not in group_of]
                if unknown:
                    raise InputError(f"groups[{number}]: {title}: must be first layers of groups, got {unknown[0]!r}")
                ahead.append(tuple(group_of[name] for name in getattr(group, title)))
            last = first + len(group.layers) - 1
            forward, backward = ahead
            groups.append(
                Fsdp2Group(
                    first, last, not group.reshard_after_forward, group.gather, group.scatter, forward, backward,
                    group.sharding,
                )
            )  # fmt: skip
            first = last + 1
        parameters = tuple(layer.parameters for layer in file.layers)
        return Fsdp2Wrapping(
            file.profile, names, parameters, tuple(groups), file.scatters_in_flight, file.ranks_per_node
        )
