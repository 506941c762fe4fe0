"""Run files followed row by row, from what docs/formats.md says of the format alone: every read sees all updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_consistency import batches_of

import gapless
from gapless.encodings.bagpipe import Cluster, Planning, Problem
from gapless.profiles.traces.generators import zipf_trace

TRAINERS = 4
DESIGNS = ["replicated", "lrpp", "lrpp-delayed", "lrpp-fine-grained"]


def inconsistencies(path: Path) -> list[str]:
    """What a run's trainers would read that isn't there or lacks an update, and what the servers lack at the end."""
    _, batches = batches_of(path)
    updates: dict[int, int] = {}  # of each row, by all batches so far
    written: dict[int, list[tuple[int, int]]] = {}  # to the servers: after which batch, with how many updates
    copies: list[dict[int, int]] = [{} for _ in range(TRAINERS)]  # of each trainer: row to updates in it
    root, last, late, found = {}, {}, set(), []  # type: ignore[var-annotated]
    for batch, run in enumerate(batches):
        now_late = set()
        for row, fetched_by, private_to, sync, evicted, using in zip(
            *(run[name].tolist() for name in ("ids", "fetched_by", "private_to", "sync", "evicted")), run["users"],
            strict=True,
        ):  # fmt: skip
            readers = np.flatnonzero(using).tolist()
            fetch = {-1: list(range(TRAINERS)), -3: readers}.get(fetched_by, [fetched_by] * (fetched_by >= 0))
            at_servers = [count for after, count in written.get(row, [(-1, 0)]) if after <= int(run["prefetch_after"])]
            for trainer in fetch:
                copies[trainer][row] = at_servers[-1] if at_servers else 0
            if fetched_by in (-4, -5):
                if (last[row] == batch - 1) != (fetched_by == -4) or root[row] not in range(TRAINERS):
                    found.append(f"batch {batch}: row {row} is sent at another time than its last use asks for")
                sent = copies[root[row]].get(row, -1)
                for trainer in readers:
                    copies[trainer][row] = sent
            if row in late:
                found.append(f"batch {batch}: row {row} is read before its synchronisation has ended")
            for trainer in readers:
                if copies[trainer].get(row) != updates.get(row, 0):
                    found.append(f"batch {batch}: trainer {trainer} reads row {row} without all updates")
            updates[row], last[row], is_rooted = updates.get(row, 0) + 1, batch, fetched_by <= -3
            if sync == 0 and readers != [private_to]:
                found.append(f"batch {batch}: row {row} has users whose gradients go nowhere")
            holders = [private_to] if private_to >= 0 else list(range(TRAINERS))
            for trainer in range(TRAINERS):
                copies[trainer].pop(row, None)
            for trainer in holders:
                copies[trainer][row] = updates[row]
            if is_rooted:
                root[row] = private_to
            if sync == 2:
                now_late.add(row)
            if evicted:
                written.setdefault(row, [(-1, 0)]).append((batch, updates[row]))
                for trainer in holders:
                    del copies[trainer][row]
        late = now_late
    found += [
        f"row {row} is never written back" for row in updates if written.get(row, [(0, 0)])[-1][1] != updates[row]
    ]
    return found


def saved(tmp_path: Path, design: str, seed: int = 0, **settings: Any) -> Path:
    planning = Planning(TRAINERS, 32, **{"lookahead": 3, "batches": 12, "design": design, **settings})
    trace = zipf_trace((60, 400, 8), 1.1, 384, seed)
    path = tmp_path / "run.npz"
    gapless.solve(Problem(trace, planning, Cluster(TRAINERS))).save(path)
    return path


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("lookahead", [1, 4])
def test_nothing_is_read_that_is_missing_or_stale(tmp_path: Path, design: str, lookahead: int) -> None:
    assert inconsistencies(saved(tmp_path, design, seed=lookahead, lookahead=lookahead)) == []


@pytest.mark.parametrize("objective", ["paper", "fetches"])
def test_whatever_the_partition(tmp_path: Path, objective: str) -> None:
    assert inconsistencies(saved(tmp_path, "lrpp-fine-grained", objective=objective)) == []
