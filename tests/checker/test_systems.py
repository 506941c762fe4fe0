"""Schedules in the manner of each system that gapless lowers: collectives, MONeT, Bagpipe, Cupcake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapless.checker import Report, Rule, check
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, schedule_from_events
from gapless.topologies.topology import Link, Topology

COMPUTE, TRANSFER, COLLECTIVE = EventKind


def replay(graph: Graph, topology: Topology, *events: Event) -> Report:
    return check(schedule_from_events(graph, topology, events))


def rules(report: Report) -> set[str]:
    return {violation.rule.value for violation in report.violations}


# Reductions on a ring of three ranks: chunk c ends, complete, on rank c, and from there goes to all.

RANKS = 3
RING = Topology(
    name="ring",
    node_of_device=(0,) * RANKS,
    links=tuple(Link(rank, (rank + 1) % RANKS, 1.0, 0.0) for rank in range(RANKS)),
)
OWN = Placement.of(
    [(chunk, rank) for rank in range(RANKS) for chunk in range(RANKS)],
    [1 << rank for rank in range(RANKS) for _ in range(RANKS)],
)
REDUCED = Graph(
    size_bytes=np.full(RANKS, 8),
    initial=OWN,
    required=Placement.of([(rank, rank) for rank in range(RANKS)], [0b111] * RANKS),
)
EVERYWHERE = replace(REDUCED, required=replace(OWN, contributions=(0b111,) * RANKS**2))


def reduce_scatter() -> list[Event]:
    """Step t: rank r adds its partial sum of chunk r - t - 1 to the next rank's."""
    return [
        Event(TRANSFER, float(step), step + 1.0, rank, moves=((rank - step - 1) % RANKS,), reduces=True)
        for step in range(RANKS - 1)
        for rank in range(RANKS)
    ]


def all_reduce() -> list[Event]:
    """The reduction, and then every rank hands on the complete chunk that it got last."""
    spread = [
        Event(TRANSFER, step + 2.0, step + 3.0, rank, moves=((rank - step) % RANKS,))
        for step in range(RANKS - 1)
        for rank in range(RANKS)
    ]
    return reduce_scatter() + spread


def test_reduce_scatter_on_a_ring_is_valid() -> None:
    report = replay(REDUCED, RING, *reduce_scatter())
    assert report.valid, report.summary()
    assert report.makespan_s == 2.0


def test_all_reduce_on_a_ring_is_valid() -> None:
    report = replay(EVERYWHERE, RING, *all_reduce())
    assert report.valid, report.summary()
    assert report.makespan_s == 4.0
    assert report.peak_bytes == (24, 24, 24)


def test_a_reduction_that_is_left_out_is_required_missing_and_named() -> None:
    report = replay(REDUCED, RING, *reduce_scatter()[1:])
    assert rules(report) == {"required-missing"}
    assert "is required at the end with contributions 0, which it does not hold" in report.violations[0].message


def test_adding_a_partial_sum_twice_is_double_reduction() -> None:
    events = reduce_scatter()
    report = replay(REDUCED, RING, *events, replace(events[-1], start_s=2.0, end_s=3.0))
    assert rules(report) == {"double-reduction"}
    assert report.violations[0].event == len(events)


def test_listing_a_chunk_twice_in_one_reduction_is_double_reduction() -> None:
    events = reduce_scatter()
    events[0] = replace(events[0], moves=events[0].moves * 2)
    assert rules(replay(REDUCED, RING, *events)) == {"double-reduction"}


def test_copying_over_a_partial_sum_that_is_nowhere_else_is_input_stale() -> None:
    events = reduce_scatter()
    events[0] = replace(events[0], reduces=False)
    report = replay(REDUCED, RING, *events)
    assert rules(report) == {"input-stale", "required-missing"}
    assert "the only copy that holds contributions 1" in report.violations[0].message


def test_copying_over_a_partial_sum_that_another_rank_holds_too_is_allowed() -> None:
    events = all_reduce()
    last = events[-1]
    chunk, source = last.moves[0], RING.links[last.place].source
    # The next rank holds the complete chunk too, so an incomplete one may take its place here, and be replaced again.
    graph = replace(EVERYWHERE, initial=replace(OWN, contributions=(0b111,) * RANKS**2))
    assert replay(graph, RING, Event(TRANSFER, 0.0, 1.0, source, moves=(chunk,))).valid


# MONeT: one device, recomputation, in-place ops, workspace, alternative inputs, a memory budget.

X, A, B, LOSS, GRAD_B, GRAD_A, GRAD_X = range(7)
TRAINING = Graph(
    size_bytes=np.array([10, 40, 30, 1, 30, 40, 10]),
    ops=(
        Op("conv", (X,), (A,), (Implementation(2.0, workspace_bytes=50), Implementation(4.0))),
        Op("relu", (A,), (B,), (Implementation(1.0), Implementation(1.0, overwrites=(A,)))),
        Op("loss", (B,), (LOSS,), (Implementation(1.0),)),
        Op("loss backward", (LOSS,), (GRAD_B,), (Implementation(1.0),)),
        Op("relu backward", (GRAD_B, A), (GRAD_A,), (Implementation(1.0), Implementation(1.0, inputs=(GRAD_B, B)))),
        Op("conv backward", (GRAD_A, A), (GRAD_X,), (Implementation(2.0),)),
    ),
    initial=Placement.of([(X, 0)]),
    tensor_names=("x", "a", "b", "loss", "grad b", "grad a", "grad x"),
)


def gpu(memory_bytes: float) -> Topology:
    return Topology("one device", (0,), memory_bytes=(memory_bytes,))


def training(*steps: tuple[int, int, tuple[int, ...]]) -> list[Event]:
    """(op, implementation, tensors freed after it), one after the other."""
    events, now = [], 0.0
    for op, impl, freed in steps:
        end_s = now + TRAINING.ops[op].implementations[impl].duration_s
        events.append(Event(COMPUTE, now, end_s, 0, op=op, implementation=impl, frees=tuple((t, 0) for t in freed)))
        now = end_s
    return events


# a is overwritten by b, and made again by the small convolution when the backward pass needs it.
FORWARD = [(0, 0, ()), (1, 1, ()), (2, 0, ())]
RECOMPUTED = training(*FORWARD, (3, 0, (LOSS,)), (4, 1, (B, GRAD_B)), (0, 1, ()), (5, 0, (A, GRAD_A)))


def test_a_training_step_with_recomputation_in_place_and_workspace_has_the_peak_counted_by_hand() -> None:
    report = replay(TRAINING, gpu(110), *RECOMPUTED)
    assert report.valid, report.summary()
    # First convolution 10 + 40 + 50 = 100; relu backward 10 + 30 + 30 + 40 = 110.
    assert report.peak_bytes == (110,)
    assert report.makespan_s == 12.0


def test_one_byte_less_is_memory_exceeded_at_the_op_that_peaks() -> None:
    report = replay(TRAINING, gpu(109), *RECOMPUTED)
    assert rules(report) == {"memory-exceeded"}
    assert report.violations[0].event == 4


def test_the_backward_pass_that_needs_the_overwritten_input_is_input_missing() -> None:
    report = replay(TRAINING, gpu(200), *training(*FORWARD, (3, 0, (LOSS,)), (4, 0, ())))
    assert rules(report) == {"input-missing"}
    assert report.violations[0].tensor == A


def test_the_other_engine_may_not_overwrite_what_is_read() -> None:
    graph = replace(TRAINING, ops=(*TRAINING.ops, Op("keep", (A,), (GRAD_A,), (Implementation(3.0),))))
    topology = Topology("two streams", (0,), engines=((0, "main"), (0, "side")))
    conv, relu = training((0, 0, ()), (1, 1, ()))
    assert rules(replay(graph, topology, conv, Event(COMPUTE, 1.9, 5.0, 1, op=6))) == {"input-late"}
    side = Event(COMPUTE, 2.0, 5.0, 1, op=6)
    assert rules(replay(graph, topology, conv, side, replace(relu, start_s=4.0, end_s=5.0))) == {"not-free"}
    assert replay(graph, topology, conv, side, replace(relu, start_s=5.0, end_s=6.0)).valid


# Bagpipe: a row is trained on in turn by two trainers; batch x must see the updates of all earlier batches.

ROW, SERVER, TRAINERS = 0, 0, (1, 2)
EMBEDDINGS = Graph(
    size_bytes=np.array([16]),
    ops=tuple(
        Op(f"batch {batch}", (ROW,), (ROW,), (Implementation(1.0),), adds=batch, needs={ROW: (1 << batch) - 1})
        for batch in range(3)
    ),
    initial=Placement.of([(ROW, SERVER)]),
    required=Placement.of([(ROW, SERVER)], [0b111]),
    tensor_names=("row",),
)
CLUSTER = Topology(
    name="server and trainers",
    node_of_device=(0, 1, 2),
    links=tuple(Link(*ends, 1.0, 0.0) for trainer in TRAINERS for ends in ((SERVER, trainer), (trainer, SERVER))),
)
TO_1, FROM_1, TO_2, FROM_2 = range(4)


def train(batch: int, trainer: int, start_s: float) -> Event:
    return Event(COMPUTE, start_s, start_s + 1.0, trainer, op=batch)


def move(link: int, start_s: float, frees: tuple[tuple[int, int], ...] = ()) -> Event:
    return Event(TRANSFER, start_s, start_s + 1.0, link, moves=(ROW,), frees=frees)


IN_TURN = [
    move(TO_1, 0.0),
    train(0, 1, 1.0),
    train(1, 1, 2.0),
    move(FROM_1, 3.0, frees=((ROW, 1),)),
    move(TO_2, 4.0),
    train(2, 2, 5.0),
    move(FROM_2, 6.0, frees=((ROW, 2),)),
]


def test_rows_that_are_written_back_before_the_next_trainer_fetches_them_are_valid() -> None:
    report = replay(EMBEDDINGS, CLUSTER, *IN_TURN)
    assert report.valid, report.summary()


def test_a_row_prefetched_before_the_write_back_is_input_stale_when_it_is_used() -> None:
    prefetched = [*IN_TURN[:3], move(TO_2, 2.0), *IN_TURN[3:4], *IN_TURN[5:]]
    report = replay(EMBEDDINGS, CLUSTER, *prefetched)
    stale = [violation for violation in report.violations if violation.rule.value == "input-stale"]
    assert stale[0].message == "event 5 (op batch 2): reads tensor row on device 2 without contributions 0, 1"


def test_writing_a_stale_row_back_over_the_only_updated_one_is_input_stale() -> None:
    report = replay(EMBEDDINGS, CLUSTER, move(TO_2, 0.0), *IN_TURN[:4], move(FROM_2, 5.0))
    stale = [violation for violation in report.violations if violation.rule.value == "input-stale"]
    assert stale[-1].event == 5
    assert "the only copy that holds contributions 0, 1" in stale[-1].message


def test_an_update_that_enters_a_row_twice_is_double_reduction() -> None:
    report = replay(EMBEDDINGS, CLUSTER, *IN_TURN[:2], train(0, 1, 2.0))
    assert "double-reduction" in rules(report)


def test_rows_that_are_updated_together_keep_their_own_contributions() -> None:
    """One op trains on both rows; row 1 was trained on before, row 0 was not."""
    update = Op("batch 1", (0, 1), (0, 1), (Implementation(1.0),), adds=1, needs={1: 0b01}, updates=(0, 1))
    graph = Graph(
        np.array([1, 1]),
        ops=(update,),
        initial=Placement.of([(0, 0), (1, 0)], [0, 0b01]),
        required=Placement.of([(0, 0), (1, 0)], [0b10, 0b11]),
    )
    event = Event(COMPUTE, 0.0, 1.0, 0, op=0)
    assert replay(graph, gpu(10), event).valid
    mixed = replace(graph, required=replace(graph.required, contributions=(0b11, 0b11)))
    assert rules(replay(mixed, gpu(10), event)) == {"required-missing"}
    again = replay(graph, gpu(10), event, replace(event, start_s=1.0, end_s=2.0))
    assert rules(again) == {"double-reduction"}
    assert again.violation_counts == {Rule.DOUBLE_REDUCTION: 2}


def test_an_op_that_reduces_inputs_with_common_contributions_is_double_reduction() -> None:
    graph = Graph(
        np.array([1, 1, 1]),
        ops=(Op("sum", (0, 1), (2,), (Implementation(1.0),), reduces=True),),
        initial=Placement.of([(0, 0), (1, 0)], [0b01, 0b10]),
        required=Placement.of([(2, 0)], [0b11]),
    )
    event = Event(COMPUTE, 0.0, 1.0, 0, op=0)
    assert replay(graph, gpu(10), event).valid
    twice = replace(graph, initial=replace(graph.initial, contributions=(0b11, 0b10)))
    report = replay(twice, gpu(10), event)
    assert rules(report) == {"double-reduction"}
    assert report.violations[0].message == "event 0 (op sum): counts contributions 1 twice in tensor 2 on device 0"


# Cupcake: one worker with a compute stream and a network; gradients are fused, compressed and communicated.

WORKER = Topology("worker", (0,), engines=((0, "compute"), (0, "network")))
G1, G2, FUSED, SUM, U1, U2 = range(6)
FUSION = Graph(
    size_bytes=np.array([8, 8, 4, 4, 8, 8]),
    ops=(
        Op("backward 1", (), (G1,), (Implementation(2.0),)),
        Op("backward 2", (), (G2,), (Implementation(3.0),)),
        Op("encode", (G1, G2), (FUSED,), (Implementation(1.0, workspace_bytes=2),)),
        Op("all-reduce", (FUSED,), (SUM,), (Implementation(4.0),), kind="collective"),
        Op("decode", (SUM,), (U1, U2), (Implementation(1.0),)),
    ),
    required=Placement.of([(U1, 0), (U2, 0)]),
)


def fusion(collective_start_s: float) -> list[Event]:
    start = collective_start_s
    return [
        Event(COMPUTE, 0.0, 2.0, 0, op=0),
        Event(COMPUTE, 2.0, 5.0, 0, op=1),
        Event(COMPUTE, 5.0, 6.0, 0, op=2, frees=((G1, 0), (G2, 0))),
        Event(COLLECTIVE, start, start + 4.0, 1, op=3, frees=((FUSED, 0),)),
        Event(COMPUTE, start + 4.0, start + 5.0, 0, op=4, frees=((SUM, 0),)),
    ]


def test_a_fused_and_compressed_all_reduce_on_the_network_engine_is_valid() -> None:
    report = replay(FUSION, WORKER, *fusion(6.0))
    assert report.valid, report.summary()
    assert report.makespan_s == 11.0
    assert report.busy_s.engines == (7.0, 4.0)
    assert report.peak_bytes == (22,)


def test_communicating_before_the_encoding_is_done_is_input_late() -> None:
    assert rules(replay(FUSION, WORKER, *fusion(5.5))) == {"input-late"}


@pytest.mark.parametrize("engine", [0, 1])
def test_a_collective_overlaps_compute_only_on_another_engine(engine: int) -> None:
    events = fusion(6.0)
    events[3] = replace(events[3], place=engine)
    extra = Event(COMPUTE, 6.0, 8.0, 0, op=0)
    assert replay(FUSION, WORKER, *events, extra).valid == (engine == 1)
