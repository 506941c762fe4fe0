"""Graph: the one intermediate representation of all problems, tensors and the ops that make and use them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.report.short_repr import Brief

if TYPE_CHECKING:  # networkx is slow to load, and not needed for pictures
    import networkx as nx

__all__ = ["Budget", "Graph", "Implementation", "Op", "Placement"]

MOST_BYTES = 2**62
"""Sizes must sum to less, so that no sum of them leaves int64."""


@dataclass(frozen=True)
class Budget:
    """A limit on what the implementations that run may spend in sum, of what time and memory don't measure: an error.

    Raises `InputError` where the limit is not a number >= 0.
    """

    name: str
    limit: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise InputError(f"budget {self.name!r}: limit must be finite and >= 0, got {self.limit}")


@dataclass(frozen=True)
class Implementation:
    """One implementation of an op.

    `inputs` replaces the op's inputs where this implementation reads other tensors (a backward pass that needs the
    output instead of the input); None keeps them. `overwrites` names inputs whose bytes the outputs take over: they are
    gone as soon as the op starts. `power_w`: mean power draw while it runs, None if unknown. `spends`: (budget of the
    graph, amount) each time it runs.
    """

    duration_s: float
    workspace_bytes: int = 0
    inputs: tuple[int, ...] | None = None
    overwrites: tuple[int, ...] = ()
    name: str = ""
    power_w: float | None = None
    spends: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Op:
    """A computation: reads `inputs`, writes `outputs` (tensor ids), in one of several implementations.

    Contributions (see `Placement`): an output holds the union of what the inputs hold, plus the contribution number
    `adds`. Where the op `reduces`, the inputs' sets must be disjoint. `needs` maps an input to the set (bits) that it
    must hold when the op starts: the updates that this point of the program must see. `updates` names inputs that are
    outputs too and are changed one by one, as a table's rows are by a step of training: each holds what it held before,
    plus `adds`, whatever the others hold.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    implementations: tuple[Implementation, ...]
    kind: str = "compute"
    adds: int | None = None
    reduces: bool = False
    needs: dict[int, int] = field(default_factory=dict)
    updates: tuple[int, ...] = ()

    def reads(self, implementation: int) -> tuple[int, ...]:
        """The tensors that this implementation reads."""
        other = self.implementations[implementation].inputs
        return self.inputs if other is None else other


@dataclass(frozen=True)
class Placement:
    """Copies: tensor `tensors[k]` is on device `devices[k]`, holding the contributions `contributions[k]`.

    A contribution is one part of a value (one rank's input to a reduction, one batch's update of a row). A set of them
    is a Python int used as bits: bit i is contribution i. None where no value is ever a combination of parts.
    """

    tensors: NDArray[np.int64]
    devices: NDArray[np.int64]
    contributions: tuple[int, ...] | None = None

    @classmethod
    def of(cls, copies: Sequence[tuple[int, int]], contributions: Sequence[int] | None = None) -> Placement:
        """A placement from (tensor, device) pairs, in the given order."""
        pairs = np.array(copies, dtype=np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], pairs[:, 1], None if contributions is None else tuple(contributions))

    def __len__(self) -> int:
        return len(self.tensors)


EMPTY = Placement(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, repr=False)
class Graph(Brief):
    """Tensors, ops, and what must be where before and after.

    `size_bytes`: int64, shape (tensors,). `initial` and `required`: the copies that are there at the start, and those
    that must be there at the end, with the contributions that they must hold. `tensor_names` may be empty. `budgets`:
    limits on what the implementations that run spend.

    The graph checks itself: sizes and times are finite and not negative, ids are in range, the ops are acyclic
    (recomputation is a matter of the schedule, not of the graph). Raises `InputError`.
    """

    size_bytes: NDArray[np.int64]
    ops: tuple[Op, ...] = ()
    initial: Placement = EMPTY
    required: Placement = EMPTY
    tensor_names: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def __post_init__(self) -> None:
        if self.size_bytes.ndim != 1 or not np.issubdtype(self.size_bytes.dtype, np.integer):
            raise InputError("graph: size_bytes must be a one-dimensional array of integers")
        if self.size_bytes.size and self.size_bytes.min() < 0:
            tensor = int(self.size_bytes.argmin())
            raise InputError(
                f"tensor {self.tensor_name(tensor)}: size_bytes must be >= 0, got {self.size_bytes[tensor]}"
            )
        total = float(self.size_bytes.sum(dtype=np.float64))
        if total >= MOST_BYTES:
            raise InputError(f"graph: size_bytes must sum to less than 2**62, got {total:.4g}")
        if self.tensor_names and len(self.tensor_names) != self.tensor_count:
            raise InputError(f"graph: {len(self.tensor_names)} tensor names for {self.tensor_count} tensors")
        for op in self.ops:
            _check_op(op, self.tensor_count, len(self.budgets))
        for title, placement in (("initial", self.initial), ("required", self.required)):
            _check_placement(title, placement, self.tensor_count)
        if self.ops:
            _check_acyclic(self)

    @property
    def tensor_count(self) -> int:
        """The number of tensors."""
        return len(self.size_bytes)

    def tensor_name(self, tensor: int) -> str:
        """The tensor's name, or its number where it has none."""
        return self.tensor_names[tensor] if self.tensor_names else str(tensor)

    @cached_property
    def tracks_contributions(self) -> bool:
        """Whether any value of this graph is a combination of contributions."""
        placed = self.initial.contributions is not None or self.required.contributions is not None
        return placed or any(op.adds is not None or op.reduces or op.needs for op in self.ops)

    def to_networkx(self) -> nx.DiGraph[str]:
        """The bipartite graph of ops (`o0`, `o1`, ...) and tensors (`t0`, ...), edges in the direction of the data."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(f"t{tensor}" for tensor in range(self.tensor_count))
        for number, op in enumerate(self.ops):
            graph.add_node(f"o{number}")
            read = {tensor for k in range(len(op.implementations)) for tensor in op.reads(k)}
            graph.add_edges_from((f"t{tensor}", f"o{number}") for tensor in sorted(read))
            graph.add_edges_from((f"o{number}", f"t{tensor}") for tensor in op.outputs)
        return graph


def _check_op(op: Op, tensor_count: int, budget_count: int) -> None:
    where = f"op {op.name!r}"
    if not op.implementations:
        raise InputError(f"{where}: implementations must hold at least one, got none")
    named = [*op.inputs, *op.outputs, *op.needs]
    for implementation in op.implementations:
        if not (implementation.duration_s >= 0 and math.isfinite(implementation.duration_s)):
            raise InputError(f"{where}: duration_s must be finite and >= 0, got {implementation.duration_s}")
        if not 0 <= implementation.workspace_bytes < MOST_BYTES:
            raise InputError(f"{where}: workspace_bytes must be in 0..2**62 - 1, got {implementation.workspace_bytes}")
        power_w = implementation.power_w
        if power_w is not None and not (power_w >= 0 and math.isfinite(power_w)):
            raise InputError(f"{where}: power_w must be finite and >= 0, got {power_w}")
        for budget, amount in implementation.spends:
            if not (0 <= budget < budget_count and math.isfinite(amount) and amount >= 0):
                rule = f"spends must be (budget in 0..{budget_count - 1}, a number >= 0)"
                raise InputError(f"{where}: {rule}, got {(budget, amount)}")
        reads = op.inputs if implementation.inputs is None else implementation.inputs
        strays = sorted(set(implementation.overwrites) - set(reads))
        if strays:
            raise InputError(f"{where}: overwrites must name inputs, got tensor {strays[0]}")
        named += reads
    if named and not 0 <= min(named) <= max(named) < tensor_count:
        tensor = next(tensor for tensor in named if not 0 <= tensor < tensor_count)
        raise InputError(f"{where}: tensor ids must be in 0..{tensor_count - 1}, got {tensor}")
    strays = sorted(set(op.updates).difference(set(op.inputs).intersection(op.outputs))) if op.updates else []
    if strays:
        raise InputError(f"{where}: updates must name inputs that are outputs too, got tensor {strays[0]}")
    if op.adds is not None and op.adds < 0:
        raise InputError(f"{where}: adds must be a contribution number >= 0, got {op.adds}")
    if min(op.needs.values(), default=0) < 0:
        raise InputError(f"{where}: needs must be sets of contributions as bits >= 0, got {min(op.needs.values())}")


def _check_placement(title: str, placement: Placement, tensor_count: int) -> None:
    if len(placement.tensors) != len(placement.devices):
        raise InputError(f"{title} placement: {len(placement.tensors)} tensors for {len(placement.devices)} devices")
    if placement.contributions is not None and len(placement.contributions) != len(placement):
        raise InputError(f"{title} placement: {len(placement.contributions)} contribution sets for {len(placement)}")
    if min(placement.contributions or (), default=0) < 0:
        raise InputError(f"{title} placement: contributions must be sets as bits >= 0, got a negative one")
    if len(placement) and (placement.tensors.min() < 0 or placement.tensors.max() >= tensor_count):
        raise InputError(f"{title} placement: tensor ids must be in 0..{tensor_count - 1}")
    if len(placement) and placement.devices.min() < 0:
        raise InputError(f"{title} placement: device ids must be >= 0, got {placement.devices.min()}")


def _check_acyclic(graph: Graph) -> None:
    # An op that reads and writes a tensor updates it and does not make it: whatever else reads the tensor may come
    # before, even lead to the update (a weight, its gradient, the weight's step), so the update's edge is left out.
    makes = [_made(op) for op in graph.ops]
    made = set().union(*makes)  # no cycle leads through other tensors, of which there may be many
    if not made or _is_in_order(graph.ops, makes, made):
        return
    import networkx as nx

    network: nx.DiGraph[str] = nx.DiGraph()
    for number, op in enumerate(graph.ops):
        read = {tensor for k in range(len(op.implementations)) for tensor in made.intersection(op.reads(k))}
        network.add_edges_from((f"t{tensor}", f"o{number}") for tensor in sorted(read))
        network.add_edges_from((f"o{number}", f"t{tensor}") for tensor in sorted(makes[number]))
    if not nx.is_directed_acyclic_graph(network):
        cycle = [edge[0] for edge in nx.find_cycle(network)]
        names = [graph.ops[int(node[1:])].name for node in cycle if node.startswith("o")]
        raise InputError(f"graph: ops must not form a cycle, got {' -> '.join(names)}")


def _is_in_order(ops: Sequence[Op], makes: Sequence[set[int]], made: set[int]) -> bool:
    """Whether no op reads what only it or a later one makes, as in a program: then there is no cycle."""
    waiting = dict.fromkeys(made, 0)
    for outputs in makes:
        for tensor in outputs:
            waiting[tensor] += 1
    for op, outputs in zip(ops, makes, strict=True):
        if any(waiting.get(tensor) for k in range(len(op.implementations)) for tensor in op.reads(k)):
            return False
        for tensor in outputs:
            waiting[tensor] -= 1
    return True


def _made(op: Op) -> set[int]:
    """The outputs that an op doesn't also read, in whichever implementation."""
    updated = set(op.outputs).intersection(*[{*op.reads(k), *op.inputs} for k in range(len(op.implementations))])
    return set(op.outputs) - updated
