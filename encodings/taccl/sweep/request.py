"""Request: what a sweep is asked for, and what it does to the costs of links that chunks are cut into instances.

With n instances each chunk is cut into n parts on n thread blocks. One can't keep a fast link busy alone (thesis,
section 5.6.2): n of them move n times as much, up to what the link carries. Each has its own synchronisation on the
link at the start of a send, so that the latency grows with n (section 5.8.3, where Figure 5.13 shows both effects and
prints no numbers)::

    beta_n  = max(beta, 1 / (n * block_bytes_per_s))
    alpha_n = alpha * (1 + alpha_growth * (n - 1))
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Literal

from gapless import __version__
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem, find_topology
from gapless.encodings.taccl.question import AUTO, COLLECTIVE, SweepQuestion
from gapless.encodings.taccl.sketch.format import Sketch, load_sketch, read_sketch
from gapless.encodings.taccl.solve import in_chunks
from gapless.errors import InputError
from gapless.io.taccl_ef import LoweringOptions
from gapless.ir.collective import Collective, collective_by_name, divided
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

__all__ = [
    "Choice", "InstanceCosts", "Job", "Request", "larger_buffer", "request_of", "sizes_between", "with_instances",
]  # fmt: skip

Choice = Sketch | Literal["auto"] | None
"""A sketch, a search over sketches, or none."""
Job = tuple[int, int, int]
"""(size, parts, number of the sketch)."""

_PARTS = (1, 2)
"""Into how many parts chunks are cut, unless it is said."""


@dataclass(frozen=True)
class InstanceCosts:
    """The two numbers of the model.

    `block_bytes_per_s`: what one thread block moves. 20 GB/s is what NCCL's tuning table has as the most of a channel
    on Volta and Ampere GPUs (LL128, ring and tree); for Hopper it has 36.7. `alpha_growth`: the part of a link's alpha
    that each further instance adds. 0.05 is no measurement: it puts the size above which 8 instances of the ALLGATHER
    plans for two NDv2 nodes beat one between 1 and 2 MB, where the thesis has it (section 5.8.2).

    Raises `InputError` for a bandwidth that isn't above 0, or a growth below 0.
    """

    block_bytes_per_s: float = 20e9
    alpha_growth: float = 0.05

    def __post_init__(self) -> None:
        if not self.block_bytes_per_s > 0:
            raise InputError(f"block_bytes_per_s must be > 0, got {self.block_bytes_per_s}")
        if not self.alpha_growth >= 0:
            raise InputError(f"alpha_growth must be >= 0, got {self.alpha_growth}")


def with_instances(topology: Topology, instances: int, costs: InstanceCosts | None = None) -> Topology:
    """The same machine as a program of so many instances sees it: same links and resources, other alphas and betas."""
    if instances < 1:
        raise InputError(f"instances must be >= 1, got {instances}")
    costs = costs or InstanceCosts()
    factor = 1 + costs.alpha_growth * (instances - 1)
    least_s_per_byte = 1 / (instances * costs.block_bytes_per_s)
    links = tuple(
        replace(link, alpha_s=link.alpha_s * factor, beta_s_per_byte=max(link.beta_s_per_byte, least_s_per_byte))
        for link in topology.links
    )
    return replace(topology, links=links)


@dataclass(frozen=True)
class Request:
    """A collective by name, for buffers of `sizes_bytes` (ascending), lowered with any of `instances`.

    A size is that of the larger of one rank's two buffers, as the runtimes compare it with minBytes and maxBytes. Each
    size is planned under each of `sketches`, None for none, `auto` for a search over sketches of its own. A sketch's
    chunks are cut into each of `parts` and synthesised so, but for sizes at which latency rules; None is 1, 2 and,
    without a sketch, the number that suits the largest size. `costs`: of thread blocks. `lowering`: `proto`,
    `placement`, `runtime`, see `lower`. With `tolerance` t, a plan serves a size if it is at most (1 + t) times as slow
    as the fastest, so that fewer files are needed. `parameters`: of the synthesis.

    Raises `InputError` for no sizes or instances, for ones below 1, and for a tolerance below 0.
    """

    topology: Topology
    collective: str
    sizes_bytes: tuple[int, ...]
    instances: tuple[int, ...] = (1, 2, 4, 8)
    parts: tuple[int, ...] | None = None
    sketches: tuple[Choice, ...] = (None,)
    costs: InstanceCosts = field(default_factory=InstanceCosts)
    lowering: LoweringOptions = field(default_factory=LoweringOptions)
    tolerance: float = 0.0
    parameters: Parameters = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topology", self.topology.without_switch_groups())  # a program can't ask switches
        for title in ("sizes_bytes", "instances", *(() if self.parts is None else ("parts",))):
            values = getattr(self, title)
            if not values or min(values) < 1:
                raise InputError(f"{title}: must hold at least one number, each >= 1, got {list(values)}")
            object.__setattr__(self, title, tuple(sorted(set(values))))
        if not self.tolerance >= 0:
            raise InputError(f"tolerance must be >= 0, got {self.tolerance}")
        if not self.sketches:
            raise InputError("sketches: must hold at least one sketch, or None for none")
        assert self.definition is not None  # the name is checked at once

    @cached_property
    def definition(self) -> Collective:
        """The collective with one chunk for each rank, or each pair of ranks."""
        return collective_by_name(self.collective, self.topology.device_count)

    def problem(self, size_bytes: int, parts: int, number: int = 0) -> Chunked | Problem:
        """The synthesis problem for a size, with each chunk of the sketch of this number cut into `parts`."""
        sketch = self.sketches[number]
        if isinstance(sketch, str):
            return Problem(self.topology, self.collective, self._input_bytes(size_bytes), sketch)
        whole = Chunked.of(self.topology, self.collective, self._input_bytes(size_bytes), sketch)
        fine = divided(whole.collective, parts)
        return replace(whole, collective=fine, chunk_bytes=-(-size_bytes // larger_buffer(fine)))

    def sketch_name(self, number: int) -> str | None:
        """What the sketch of this number is called, None for no sketch."""
        sketch = self.sketches[number]
        return sketch.name if isinstance(sketch, Sketch) else sketch

    def cuts(self, number: int = 0) -> tuple[int, ...]:
        """The numbers of parts for the sketch of this number, ascending; a search over sketches chooses for itself."""
        sketch = self.sketches[number]
        if isinstance(sketch, str):
            return (1,)
        if self.parts is not None:
            return self.parts
        return _PARTS if sketch is not None else self._cuts_of_all_links

    @cached_property
    def _cuts_of_all_links(self) -> tuple[int, ...]:
        most_bytes = self._input_bytes(self.sizes_bytes[-1])
        largest = in_chunks(Problem(self.topology, self.collective, most_bytes), SolveOptions(), self.parameters)
        return tuple(sorted({*_PARTS, largest.chunks}))

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """What is synthesised, in this order: whole chunks first, the ends of the range first.

        Chunks are cut only where a part still takes some link longer than the link's latency.
        """
        cuts = [self.cuts(number) for number in range(len(self.sketches))]
        return tuple(
            (size, parts, number)
            for parts in sorted(set(chain.from_iterable(cuts)))
            for size in _spread_out(self.sizes_bytes)
            for number, its_parts in enumerate(cuts)
            if parts == its_parts[0] or (parts in its_parts and self._is_worth(size, parts))
        )

    @cached_property
    def machines(self) -> tuple[Topology, ...]:
        """What the plans run on: the topology, or what sketches make of it, each once."""
        found = [
            Chunked(self.topology, self.definition, 1, sketch).machine
            for sketch in self.sketches
            if not isinstance(sketch, str)
        ]
        return tuple({id(machine): machine for machine in found or [self.topology]}.values())

    def _is_worth(self, size_bytes: int, parts: int) -> bool:
        chunk_bytes = size_bytes / larger_buffer(self.definition) / parts
        return bool((self.topology.beta_s_per_byte * chunk_bytes > self.topology.alpha_s).any())

    def _input_bytes(self, size_bytes: int) -> int:
        """The larger input where the larger buffer is of that size."""
        return -(-size_bytes * max(map(len, self.definition.inputs)) // larger_buffer(self.definition))

    def key(self, options: SolveOptions, number: int = 0) -> str:
        """A hash of all that a plan under this sketch depends on, but for its size, threads and time limit."""
        machine = self.topology
        columns = (machine.link_source, machine.link_target, machine.alpha_s, machine.beta_s_per_byte)
        held = [link.resources for link in machine.links]
        asked = [
            __version__,
            self.collective,
            self.sketches[number],
            options.gap,
            options.seed,
            options.solver,
            self.parameters,
        ]
        groups = [machine.nics, machine.switches, held, *machine.congestion]
        names = [machine.name, machine.node_of_device, machine.resources, *groups]
        content = repr([asked, names, [column.tolist() for column in columns]])
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def larger_buffer(collective: Collective) -> int:
    """The chunks of the largest buffer of a rank."""
    return max(len(buffer) for buffer in (*collective.inputs, *collective.outputs))


def _spread_out(sizes: tuple[int, ...]) -> list[int]:
    """The ends first, then the middles of what lies between, so that a sweep that is broken off covers the range."""
    order, spans = [0, len(sizes) - 1], [(0, len(sizes) - 1)]
    for low, high in spans:
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            spans += [(low, middle), (middle, high)]
    return [sizes[place] for place in dict.fromkeys(order)]


def sizes_between(least_bytes: int, most_bytes: int, factor: int) -> tuple[int, ...]:
    """Sizes from `least_bytes` on, each `factor` times the one before, up to `most_bytes`, which is among them."""
    if factor < 2:
        raise InputError(f"factor must be >= 2, got {factor}")
    if not 1 <= least_bytes <= most_bytes:
        raise InputError(f"sizes: the least must be in 1..{most_bytes}, the largest, got {least_bytes}")
    sizes = [least_bytes]
    while sizes[-1] * factor < most_bytes:
        sizes.append(sizes[-1] * factor)
    return tuple(dict.fromkeys([*sizes, most_bytes]))


def request_of(asked: SweepQuestion) -> Request:
    """What is asked for. Raises `InputError` as `problem` does."""
    sketches = _sketches(asked.sketch or (), asked.sketch_file)
    named = [sketch for sketch in sketches if isinstance(sketch, Sketch) and sketch.node_count is not None]
    return Request(
        topology=find_topology(asked.topology, asked.topology_file, asked.nodes, named[0] if named else None),
        collective=asked.collective or COLLECTIVE,
        sizes_bytes=asked.sizes or sizes_between(asked.min_size, asked.max_size, asked.factor),
        instances=asked.instances,
        parts=asked.parts,
        sketches=sketches,
        costs=InstanceCosts(asked.block_bandwidth, asked.alpha_growth),
        lowering={"proto": asked.proto, "placement": asked.placement, "runtime": asked.runtime},
        tolerance=asked.tolerance,
    )


def _sketches(sketches: Sequence[str | Sketch], sketch_file: str | None) -> tuple[Choice, ...]:
    """Those that are named or given, and that in a file; none where there is none of these."""
    found: list[Choice] = []
    for sketch in sketches:
        found.append(AUTO if sketch == AUTO else load_sketch(sketch) if isinstance(sketch, str) else sketch)
    if sketch_file is not None:
        found.append(read_sketch(sketch_file))
    names = [sketch.name if isinstance(sketch, Sketch) else sketch for sketch in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"sketch: must name each sketch once, got {name!r} {names.count(name)} times")
    return tuple(found) or (None,)
