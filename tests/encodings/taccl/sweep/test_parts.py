"""The parts of a sweep: sizes, jobs, pieces, choices and ranges."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.checker import check
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.baselines.library import Baselines
from gapless.encodings.taccl.sweep.candidates import Candidate, Lowering, Times, pipelined
from gapless.encodings.taccl.sweep.ranges import Choice, choose, to_ranges
from gapless.encodings.taccl.sweep.request import Request, sizes_between
from gapless.errors import InputError
from gapless.ir.collective import COLLECTIVES, collective_by_name
from gapless.ir.simulate import retime
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

NDV2 = load_topology("ndv2", 1)


def candidates(collective: str, size_bytes: int = 1_000_000) -> list[Candidate]:
    definition = collective_by_name(collective, 8)
    found = Baselines(NDV2, definition).of_size(size_bytes)
    return [Candidate(its.name, its.collective, its.schedule, True) for its in found]


def test_sizes_grow_by_the_factor_and_end_with_the_largest() -> None:
    assert sizes_between(1000, 16_000, 4) == (1000, 4000, 16_000)
    assert sizes_between(1000, 20_000, 4) == (1000, 4000, 16_000, 20_000)
    assert sizes_between(1000, 1000, 2) == (1000,)
    with pytest.raises(InputError, match=r"the least must be in 1\.\.10, the largest, got 11"):
        sizes_between(11, 10, 2)
    with pytest.raises(InputError, match="factor must be >= 2, got 1"):
        sizes_between(1, 10, 1)


def test_requests_are_checked() -> None:
    for title in ("sizes_bytes", "instances", "parts"):
        with pytest.raises(InputError, match=f"{title}: must hold at least one number, each >= 1"):
            Request(NDV2, "allgather", **{"sizes_bytes": (1000,), title: (0,)})
    with pytest.raises(InputError, match="tolerance must be >= 0"):
        Request(NDV2, "allgather", (1000,), tolerance=-1)
    with pytest.raises(InputError, match="collective: must be one of"):
        Request(NDV2, "allgatter", (1000,))


@pytest.mark.parametrize("name", ["allgather", "alltoall", "broadcast", "gather", "scatter"])
def test_a_size_is_that_of_the_larger_buffer(name: str) -> None:
    problem = Request(NDV2, name, (8_000_000,)).problem(8_000_000, 1)
    assert isinstance(problem, Chunked)
    buffers = (*problem.collective.inputs, *problem.collective.outputs)
    assert problem.chunk_bytes * max(map(len, buffers)) == 8_000_000


def test_chunks_are_cut_only_where_latency_does_not_rule() -> None:
    jobs = Request(NDV2, "allgather", (1000, 10**6, 10**9), parts=(1, 2)).jobs
    assert jobs[:3] == ((1000, 1, 0), (10**9, 1, 0), (10**6, 1, 0))
    assert jobs[3:] == ((10**9, 2, 0), (10**6, 2, 0))
    assert Request(NDV2, "allgather", (10**9,)).problem(10**9, 2).description["chunks_per_rank"] == 2


def test_every_size_is_planned_under_every_sketch_and_a_search_chooses_its_own_parts() -> None:
    sketches = (load_sketch("ndv2-sk-1"), "auto")
    request = Request(load_topology("ndv2", 2), "allgather", (1000, 10**9), parts=(1, 2), sketches=sketches)
    ends = [(size, 1, number) for size in (1000, 10**9) for number in (0, 1)]
    assert request.jobs == (*ends, (10**9, 2, 0))
    assert [request.sketch_name(number) for number in (0, 1)] == ["ndv2-sk-1", "auto"]
    assert request.problem(10**9, 2, 0).description["sketch"] == "ndv2-sk-1"
    assert request.problem(10**9, 1, 1).description["sketch"] == "auto"
    alone = replace(request, sketches=sketches[:1])
    assert alone.key(SolveOptions()) == request.key(SolveOptions(), 0) != request.key(SolveOptions(), 1)


@pytest.mark.thorough
def test_without_a_sketch_the_best_number_of_parts_is_among_those_tried() -> None:
    """On its way to a GPU of another node, a large buffer is worth cutting for all NICs."""
    machine = load_topology("dgx2", 2)
    assert Request(machine, "sendrecv", (10**9,)).cuts()[-1] > 2
    assert Request(machine, "sendrecv", (10**9,), parts=(1, 3)).cuts() == (1, 3)
    assert Request(machine, "allgather", (10**9,), sketches=(load_sketch("dgx2-sk-1"),)).cuts() == (1, 2)


@pytest.mark.thorough("allreduce")
@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_plan_in_pieces_is_valid(collective: str, pieces: int) -> None:
    for candidate in candidates(collective):
        made = pipelined(candidate, pieces)
        report = check(retime(made.schedule))
        assert report.valid, f"{candidate.name}: {report.summary()}"
        assert made.collective.chunk_count == pieces * candidate.collective.chunk_count


def test_pieces_shorten_long_ways_for_many_bytes_only() -> None:
    request = Request(NDV2, "broadcast", (1000, 10**9))
    chain = next(its for its in candidates("broadcast", 1) if its.name == "ring")
    times = Times(request)
    for size, is_faster in ((1000, False), (10**9, True)):
        whole, cut = (times.makespan_s(its, size, 4) for its in (chain, pipelined(chain, 8)))
        assert (cut < whole) == is_faster


def test_times_are_those_of_the_checker() -> None:
    request = Request(NDV2, "alltoall", (5000,))
    times = Times(request)
    for candidate, instances in itertools.product(candidates("alltoall"), (1, 4)):
        assert times.makespan_s(candidate, 5000, instances) == pytest.approx(
            times.checked_s(candidate, 5000, instances)
        )


class Table(Times):
    """Times out of a table: candidate k takes `fixed[k] + size * rate[k]`."""

    def __init__(self, lines: dict[Candidate, tuple[float, float]]) -> None:
        self.lines = lines

    def makespan_s(self, candidate: Candidate, size_bytes: int, instances: int) -> float:
        fixed, rate = self.lines[candidate]
        return fixed + rate * size_bytes


def three() -> tuple[list[Candidate], Table]:
    """Best below 100, between 100 and 900, and above 900."""
    made = candidates("allgather")[:3]
    return made, Table(dict(zip(made, [(0.0, 10.0), (500.0, 5.0), (3200.0, 2.0)], strict=True)))


THREE = three()


def test_each_size_gets_its_fastest_and_ranges_change_where_they_cross() -> None:
    made, times = THREE
    sizes = [10, 50, 300, 500, 2000]
    choices = [[(candidate, 1) for candidate in made]] * len(sizes)
    chosen = choose(sizes, choices, times, 0.0, lambda choice: True)
    assert [made.index(candidate) for candidate, _ in chosen] == [0, 0, 1, 1, 2]
    ranges = to_ranges(sizes, chosen, times)
    assert [its.sizes_bytes for its in ranges] == [(10, 50), (300, 500), (2000,)]
    assert ranges[0].min_bytes == 0
    assert ranges[-1].max_bytes == 0
    for before, after in itertools.pairwise(ranges):
        assert before.max_bytes == after.min_bytes
    assert ranges[1].min_bytes == pytest.approx(100, abs=16)
    assert ranges[2].min_bytes == pytest.approx(900, abs=32)


def test_borders_are_sizes_that_no_program_takes() -> None:
    made, times = THREE
    choices = [[(candidate, 2) for candidate in made]] * 3
    ranges = to_ranges([10, 500, 2000], choose([10, 500, 2000], choices, times, 0.0, lambda choice: True), times)
    for its in ranges[:-1]:
        chunks = its.choice[0].chunks * its.choice[1]
        assert its.max_bytes % chunks


def test_what_cannot_be_is_not_chosen() -> None:
    made, times = THREE
    choices: list[list[Choice]] = [[(candidate, 1) for candidate in made]] * 2
    chosen = choose([10, 2000], choices, times, 0.0, lambda choice: choice[0] is made[1])
    assert chosen == [(made[1], 1)] * 2
    assert choose([10, 2000], choices, times, 0.0, lambda choice: False) == []


def test_a_size_without_choices_takes_its_neighbours() -> None:
    made, times = THREE
    chosen = choose([10, 20, 30], [[], [(made[0], 1)], []], times, 0.0, lambda choice: True)
    assert chosen == [(made[0], 1)] * 3


@examples(30)
@given(tolerance=st.floats(0, 2), sizes=st.sets(st.integers(1, 5000), min_size=1, max_size=8))
def test_tolerance_bounds_the_loss_and_never_adds_ranges(tolerance: float, sizes: set[int]) -> None:
    made, times = THREE
    asked = sorted(sizes)
    choices = [[(candidate, 1) for candidate in made]] * len(asked)
    chosen = choose(asked, choices, times, tolerance, lambda choice: True)
    exact = choose(asked, choices, times, 0.0, lambda choice: True)
    for size, (candidate, _) in zip(asked, chosen, strict=True):
        best = min(times.makespan_s(other, size, 1) for other in made)
        assert times.makespan_s(candidate, size, 1) <= best * (1 + tolerance) * (1 + 1e-9)
    assert len(to_ranges(asked, chosen, times)) <= len(to_ranges(asked, exact, times))


def test_too_many_instances_are_refused_with_the_reason() -> None:
    request = Request(NDV2, "allgather", (1000,), instances=(64,))
    lowering = Lowering(request)
    ring = next(its for its in candidates("allgather") if its.name == "ring")
    assert lowering.program(ring, 64) is None
    assert lowering.program(ring, 1) is not None
    (reason,) = lowering.refused.values()
    assert "64" in reason
    assert np.isfinite(Times(request).makespan_s(ring, 1000, 64))
