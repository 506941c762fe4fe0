"""Request: what a sweep is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gapless import __version__
from gapless.collective import Collective, collective_by_name, divided
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.programs.instances import InstanceCosts
from gapless.encodings.taccl.sketch.format import Sketch
from gapless.encodings.taccl.solve import in_chunks
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

__all__ = ["Request", "larger_buffer", "sizes_between"]


_PARTS = (1, 2)
"""Into how many parts chunks are cut, unless it is said."""


@dataclass(frozen=True)
class Request:
    """A collective by name, for buffers of `sizes_bytes` (ascending), lowered with any of `instances`.

    A size is that of the larger of one rank's two buffers, as the runtimes compare it with minBytes and maxBytes. The
    sketch's chunks are cut into each of `parts` and synthesised so, but for sizes at which latency rules; None is 1, 2
    and, without a sketch, the number that suits the largest size. `costs`: of thread blocks. `lowering`: `proto`,
    `placement`, `runtime`, see `lower`. With `tolerance` t, a plan serves a size if it is at most (1 + t) times as slow
    as the fastest, so that fewer files are needed. `parameters`: of the synthesis.

    Raises `InputError` for no sizes or instances, for ones below 1, and for a tolerance below 0.
    """

    topology: Topology
    collective: str
    sizes_bytes: tuple[int, ...]
    instances: tuple[int, ...] = (1, 2, 4, 8)
    parts: tuple[int, ...] | None = None
    sketch: Sketch | None = None
    costs: InstanceCosts = field(default_factory=InstanceCosts)
    lowering: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    parameters: Parameters = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        for title in ("sizes_bytes", "instances", *(() if self.parts is None else ("parts",))):
            values = getattr(self, title)
            if not values or min(values) < 1:
                raise InputError(f"{title}: must hold at least one number, each >= 1, got {list(values)}")
            object.__setattr__(self, title, tuple(sorted(set(values))))
        if not self.tolerance >= 0:
            raise InputError(f"tolerance must be >= 0, got {self.tolerance}")
        assert self.definition is not None  # the name is checked at once

    @cached_property
    def definition(self) -> Collective:
        """The collective with one chunk for each rank, or each pair of ranks."""
        return collective_by_name(self.collective, self.topology.device_count)

    def problem(self, size_bytes: int, parts: int) -> Chunked:
        """The synthesis problem for a size, with each chunk of the sketch cut into `parts`."""
        whole = Chunked.of(self.topology, self.collective, self._input_bytes(size_bytes), self.sketch)
        fine = divided(whole.collective, parts)
        return replace(whole, collective=fine, chunk_bytes=-(-size_bytes // larger_buffer(fine)))

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The numbers of parts, ascending."""
        if self.parts is not None:
            return self.parts
        if self.sketch is not None:
            return _PARTS
        most_bytes = self._input_bytes(self.sizes_bytes[-1])
        largest = in_chunks(Problem(self.topology, self.collective, most_bytes), SolveOptions(), self.parameters)
        return tuple(sorted({*_PARTS, largest.chunks}))

    @cached_property
    def jobs(self) -> tuple[tuple[int, int], ...]:
        """What is synthesised, as (size, parts), in this order: whole chunks first, the ends of the range first.

        Chunks are cut only where a part still takes some link longer than the link's latency.
        """
        order = _spread_out(self.sizes_bytes)
        return tuple((size, parts) for parts in self.cuts for size in order if self._is_worth(size, parts))

    def _is_worth(self, size_bytes: int, parts: int) -> bool:
        if parts == self.cuts[0]:
            return True
        chunk_bytes = size_bytes / larger_buffer(self.definition) / parts
        return bool((self.topology.beta_s_per_byte * chunk_bytes > self.topology.alpha_s).any())

    def _input_bytes(self, size_bytes: int) -> int:
        """The larger input where the larger buffer is of that size."""
        return -(-size_bytes * max(map(len, self.definition.inputs)) // larger_buffer(self.definition))

    def key(self, options: SolveOptions) -> str:
        """A hash of all that a synthesised plan depends on, but for its size, threads and time limit."""
        machine = self.topology
        columns = (machine.link_source, machine.link_target, machine.alpha_s, machine.beta_s_per_byte)
        held = [link.resources for link in machine.links]
        asked = [__version__, self.collective, self.sketch, options.gap, options.seed, options.solver, self.parameters]
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
