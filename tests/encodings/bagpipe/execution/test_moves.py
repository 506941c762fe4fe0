"""Exchanges of a run: each trainer has every row that it uses, and nobody gets what it has; order of tasks."""

from __future__ import annotations

import numpy as np
import pytest

from gapless import bagpipe
from gapless.encodings.bagpipe.execution.moves import NOBODY, Exchange
from gapless.encodings.bagpipe.execution.order import lanes_of
from gapless.encodings.bagpipe.execution.stream import BatchStream, batches_to_run
from gapless.encodings.bagpipe.lowering.actions import SHARED
from gapless.encodings.bagpipe.question import DESIGNS
from gapless.errors import InputError
from gapless.profiles.traces.trace import trace_of_array

IDS = np.random.default_rng(0).integers(0, 60, (120, 3))


def stream_of(design: str) -> BatchStream:
    """Of a run on three trainers, with one server behind them."""
    run = bagpipe.solve(IDS, trainers=3, batch_size=16, lookahead=2, design=design).windows
    batches = batches_to_run(run, trace_of_array(IDS, "ids"), 16)
    return BatchStream(batches, run.count, design, "apart", lambda ids: np.full(len(ids), 3))


@pytest.mark.parametrize("design", DESIGNS)
def test_every_user_has_its_rows_and_gets_none_twice(design: str) -> None:
    """By hand: copies come by exchanges, and go where the plan says that they are stale."""
    stream = stream_of(design)
    copies: dict[int, set[int]] = {}
    for number in range(stream.count):
        moves = stream.of(number)
        for exchange in (moves.prefetch, moves.send_now, moves.send_later, moves.lend):
            for row, source, target in zip(exchange.row, exchange.source, exchange.target, strict=True):
                had = copies.setdefault(int(moves.step.ids[row]), set())
                assert source == 3 or source in had
                assert target not in had
                had.add(int(target))
        for row, id_ in enumerate(moves.step.ids.tolist()):
            assert set(np.flatnonzero(moves.users[row]).tolist()) <= copies[id_]
            holder = int(moves.holder[row])
            copies[id_] = set() if moves.evicted[row] else {0, 1, 2} if holder == SHARED else {holder}


@pytest.mark.parametrize("design", DESIGNS)
def test_gradients_reach_who_holds_a_row_and_evicted_rows_their_server(design: str) -> None:
    stream = stream_of(design)
    for number in range(stream.count):
        moves = stream.of(number)
        for exchange in (moves.gather_now, moves.gather_later):
            assert (exchange.target == moves.holder[exchange.row]).all()
            assert moves.users[exchange.row, exchange.source].all()
        written = np.sort(np.concatenate([moves.write_early.row, moves.write_late.row]))
        assert written.tolist() == np.flatnonzero(moves.evicted).tolist()
    assert not len(stream.holders.held()[0])
    assert (stream.holders.before(moves.step.ids) == NOBODY).all()


def test_values_lie_in_messages_by_target_and_source() -> None:
    exchange = Exchange.of(np.array([4, 1, 2, 3]), np.array([1, 0, 0, 0]), np.array([0, 2, 1, 1]))
    assert [part.tolist() for part in exchange.sent_by(0)] == [[2, 3, 1], [1, 1, 2]]
    assert [part.tolist() for part in exchange.turned().got_by(0)] == [[2, 3, 1], [1, 1, 2]]


@pytest.mark.parametrize("design", ["lrpp-fine-grained", "partitioned"])
@pytest.mark.parametrize("placement", ["apart", "same-network"])
def test_no_task_stands_before_what_it_waits_for(design: str, placement: str) -> None:
    run = bagpipe.solve(IDS, trainers=3, batch_size=16, lookahead=2, design=design, placement=placement).windows
    lanes = lanes_of(run.times, design, placement)
    tasks = [task for lane in lanes.values() for task in lane]
    assert len(set(tasks)) == len(tasks)
    assert (not lanes["up"] and not lanes["down"]) == (placement == "same-network")
    for lane in lanes.values():
        place = {task: number for number, task in enumerate(lane)}
        for activity, batch in lane:
            if activity == "prefetch" and (after := run.actions(batch).prefetch_after) >= 0:
                assert place.get(("write_late", after), -1) < place[activity, batch]
            if activity == "sync_now" and batch:
                assert place["sync_now", batch - 1] < place[activity, batch]
            if activity == "relay_fetch":
                assert place.get(("relay_write", batch), -1) < place[activity, batch]


def test_a_trace_of_other_ids_is_refused() -> None:
    run = bagpipe.solve(IDS, trainers=3, batch_size=16, lookahead=2).windows
    with pytest.raises(InputError, match="trace: must have the ids of the run in batch 0, has others"):
        list(batches_to_run(run, trace_of_array(IDS + 1, "others"), 16))
    with pytest.raises(InputError, match="trace: must have 16 examples in batch 1, as the run, got one of 4"):
        list(batches_to_run(run, trace_of_array(IDS[:20], "less"), 16))
