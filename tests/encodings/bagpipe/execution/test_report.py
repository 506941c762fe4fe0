"""What a run moves by its actions is what its schedule's transfers move."""

from __future__ import annotations

import numpy as np
import pytest

from gapless import bagpipe
from gapless.encodings.bagpipe.execution.report import planned_rows
from gapless.encodings.bagpipe.question import PAPERS
from gapless.ir.schedule import EventKind
from gapless.profiles.traces.trace_question import OPTIMIZERS, state_values


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_planned_rows_are_those_of_the_replayed_transfers(optimizer: str) -> None:
    ids = np.random.default_rng(0).integers(0, 60, (80, 3))
    plan = bagpipe.solve(ids, trainers=3, batch_size=16, lookahead=2, dimension=8, optimizer=optimizer, design=PAPERS)
    assert plan.report.valid
    schedule = plan.schedule
    actions = [plan.windows.actions(number) for number in range(plan.windows.count)]
    sizes, links = schedule.graph.size_bytes, schedule.topology.links
    groups = {tensor for tensor, name in enumerate(schedule.graph.tensor_names) if name.startswith("rows")}
    moved = [0, 0]
    for event in schedule.events():
        if event.kind is EventKind.TRANSFER:
            link = links[event.place]
            size_bytes = int(sum(sizes[tensor] for tensor in event.moves if tensor in groups))
            if link.source == 0:
                moved[0] += size_bytes * (3 if event.place == 0 else 1)  # link 0 serves all trainers
            elif link.target == 0:
                moved[1] += size_bytes
    row_bytes = 4 * (8 + state_values(optimizer, 8))
    assert [rows * row_bytes for rows in planned_rows(actions)] == moved
