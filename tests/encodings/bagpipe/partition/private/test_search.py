"""The search for private rows: its costs are those of rows counted anew, with compiled loops and with arrays."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from examples import share

from gapless.encodings.bagpipe.ids import loops
from gapless.encodings.bagpipe.parameters import Search
from gapless.encodings.bagpipe.partition.private.search import EvictedUses, _State, search_private
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.bags import Bags, Lookups, lookups


@pytest.fixture(params=["compiled", "arrays"])
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compiled loops, where numba is installed, and with arrays."""
    monkeypatch.setattr(loops, "LEAST_WORK", 0)
    if request.param == "arrays":
        monkeypatch.setattr(loops, "_is_installed", lambda: False)


def drawn(seed: int) -> tuple[Lookups, np.ndarray, int]:
    """Places of a small batch, none twice in an example, as arrays or as bags; which rows are evicted; trainers."""
    rng = np.random.default_rng(seed)
    examples, tables, rows = int(rng.integers(2, 9)), int(rng.integers(1, 5)), int(rng.integers(6, 15))
    index = rng.permuted(np.tile(np.arange(rows), (examples, 1)), axis=1)[:, :tables].astype(np.int32)
    evicted, trainers = rng.random(rows) < 0.7, int(rng.integers(1, 5))
    if seed % 3 == 2:
        lengths = rng.integers(0, tables + 1, examples)
        flat = np.concatenate([row[:length] for row, length in zip(index, lengths, strict=True)])
        return Bags(flat, lengths[:, None]), evicted, trainers
    return index, evicted, trainers


def cut(index: Lookups, evicted: np.ndarray, trainer: np.ndarray) -> int:
    """Evicted rows whose examples are on several trainers."""
    users: dict[int, set[int]] = {}
    for example, row in zip(*(each.tolist() for each in lookups(index)), strict=True):
        users.setdefault(row, set()).add(int(trainer[example]))
    return sum(len(each) > 1 for row, each in users.items() if evicted[row])


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("seed", range(share(30)))
def test_costs_are_those_of_rows_counted_anew(seed: int) -> None:
    index, evicted, trainers = drawn(seed)
    rng = np.random.default_rng(seed)
    uses = EvictedUses.of(index, evicted)
    trainer = rng.integers(0, trainers, len(index))
    state = _State(uses, trainers, trainer[uses.examples])
    assert state.cost() == cut(index, evicted, trainer)
    for at, example in enumerate(uses.examples.tolist()):
        one = np.array([at])
        state.take(one, trainer[[example]])
        without, marginal = state.cost(), state.costs(one)[0] / 128
        for to in range(trainers):
            trainer[example] = to
            assert marginal[to] == cut(index, evicted, trainer) - without
        state.put(one, trainer[[example]])
        assert state.cost() == cut(index, evicted, trainer)


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("seed", range(share(20)))
def test_the_search_is_between_contiguous_batches_and_brute_force(seed: int) -> None:
    index, evicted, trainers = drawn(seed)
    places = np.bincount(np.arange(len(index)) % trainers, minlength=trainers)
    whole = np.repeat(np.arange(trainers), places)
    found = search_private(index, evicted, places, Search(rounds=40), 0, Deadline(SolveOptions()))
    every = [
        cut(index, evicted, np.array(each))
        for each in product(range(trainers), repeat=len(index))
        if np.array_equal(np.bincount(each, minlength=trainers), places)
    ] if trainers ** len(index) <= 3000 else [0]  # fmt: skip
    assert np.array_equal(np.bincount(found.trainer, minlength=trainers), places)
    assert min(every) <= found.cost == cut(index, evicted, found.trainer) <= cut(index, evicted, whole)


@pytest.mark.parametrize("seed", range(share(30)))
def test_compiled_loops_and_arrays_search_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="needs the extra `fast`")
    rng = np.random.default_rng(seed)
    index = rng.integers(0, 40, (200, 3)).astype(np.int32) + np.arange(0, 120, 40, dtype=np.int32)
    evicted, places = rng.random(120) < 0.5, np.array([70, 60, 70])
    found = []
    monkeypatch.setattr(loops, "LEAST_WORK", 0)
    for is_installed in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(loops, "_is_installed", lambda is_installed=is_installed: is_installed)
            uses = EvictedUses.of(index, evicted)
            searched = search_private(index, evicted, places, Search(), seed, Deadline(SolveOptions()))
            found.append((*(getattr(uses, each) for each in vars(uses)), *vars(searched).values()))
    for ours, theirs in zip(*found, strict=True):
        assert np.array_equal(ours, theirs)
