"""The busiest owner's received load over k (P - 1) / P, on gradients of a small model that is really trained.

`pytest tests/benchmarks/test_oktopk_balance.py --tables FOLDER` writes the table of docs/oktopk.md in some minutes of
processor time, for three trainings of other weights and batches.
"""

from __future__ import annotations

from bisect import bisect_left
from importlib.util import find_spec

import numpy as np
import pytest
from result_tables import ResultTables
from trained_sets import trained_sets

from gapless.encodings.oktopk.allreduce.network import flat_topology
from gapless.encodings.oktopk.cuts.boundaries import averaged_cuts, even_cuts
from gapless.encodings.oktopk.cuts.loads import received_of, region_counts
from gapless.encodings.oktopk.cuts.methods import CutSearch, boundaries_by
from gapless.encodings.oktopk.parameters import DEFAULTS
from gapless.encodings.oktopk.problem import Problem
from gapless.options import Deadline, SolveOptions
from gapless.profiles.sparsity.index_sets import IndexSets

TITLE = "received load of the busiest owner over k (P - 1) / P, worst of the trainings; later: mean (worst) of steps"
RECORDED, LATER, TRAININGS = 16, 8, 3
DENSITIES = (0.001, 0.005, 0.01, 0.02)


def ratios(sets: IndexSets, cuts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Of each step."""
    ideal = sets.counts.mean(axis=1) * (sets.ranks - 1) / sets.ranks
    return received_of(region_counts(sets, cuts), owners).max(axis=1) / ideal


def found(sets: IndexSets, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Cuts and owners of a method on a flat network."""
    question = Problem(sets, flat_topology(sets.ranks, 1e9, 0.0))
    boundaries = boundaries_by(name, CutSearch(question, DEFAULTS, Deadline(SolveOptions())))
    return boundaries.cuts, boundaries.owners


class Bound:
    """What the busiest owner of a step receives at least, whatever the cuts: an entry can't be cut in two.

    By a pass of its own, over all entries that some rank selected: if regions that end as late as a load allows don't
    reach the end, none do. Without `owners`, each region may go to the rank that has most of it, several to one too.
    """

    def __init__(self, sets: IndexSets) -> None:
        places = sets.union(0)
        has = np.array([np.isin(places, sets.of(0, rank)) for rank in range(sets.ranks)])
        self.others = np.pad(np.cumsum(has.sum(axis=0) - has, axis=1), ((0, 0), (1, 0)))  # (ranks, places + 1)

    def allows(self, load: int, owners: np.ndarray | None = None) -> bool:
        """Whether all entries fit into regions with at most this load."""
        at, ranks = 0, range(len(self.others))
        for region in ranks:
            tried = ranks if owners is None else [owners[region]]
            at = max(np.searchsorted(one, one[at] + load, side="right") - 1 for one in self.others[tried])
        return bool(at == self.others.shape[1] - 1)

    def least(self) -> int:
        """The least load that any owners allow."""
        return bisect_left(range(int(self.others.max()) + 1), 1, key=self.allows)


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra `torch`")
@pytest.mark.parametrize("ranks", [4, 8, 16, 32, 64])
def test_balance_on_a_trained_model(tables: ResultTables, ranks: int, sized: object) -> None:
    most_ranks, warm_up, trainings = sized((64, 200, TRAININGS), (4, 20, 1))  # type: ignore[operator]
    means: dict[str, list[tuple[float, float]]] = {"averaged": [], "robust": []}
    for density in DENSITIES:
        one, after = dict[str, list[float]](), {name: list[float]() for name in means}
        for seed in range(trainings):
            whole = trained_sets(most_ranks, RECORDED + LATER, 0.02, warm_up, seed).part(ranks, density)
            recorded, later = whole.part(steps=slice(0, RECORDED)), whole.part(steps=slice(RECORDED, None))
            for name, ratio in _last_step(recorded.part(steps=slice(RECORDED - 1, None))).items():
                one.setdefault(name, []).append(ratio)
            averaged = (averaged_cuts(recorded, RECORDED - 1), np.arange(ranks))
            for name, cuts in (("averaged", averaged), ("robust", found(recorded, "robust"))):
                after[name].extend(ratios(later, *cuts).tolist())
        tables.table("oktopk_balance", TITLE).add(
            f"{ranks} {density}", ranks=ranks, density=f"{100 * density:g} %",
            **{name: f"{max(part):.{2 if name in ('even', 'averaged') else 3}f}" for name, part in one.items()},
            **{f"later {name}": f"{np.mean(part):.3f} ({max(part):.3f})" for name, part in after.items()},
        )  # fmt: skip
        for name, part in after.items():
            means[name].append((float(np.mean(part)), max(part)))
    if trainings < TRAININGS:
        return  # hardly trained, all entries are noise
    assert np.all(np.mean(means["robust"], axis=0) <= np.mean(means["averaged"], axis=0))
    if ranks > 4:  # at 4 ranks the two are close, and single rows are noise
        assert np.all(np.array(means["robust"]) <= np.array(means["averaged"]))


def _last_step(last: IndexSets) -> dict[str, float]:
    """Ratios of boundaries made for a step, in that step; `exact` has the least load that its owners allow."""
    order, ideal = np.arange(last.ranks), last.counts.mean() * (last.ranks - 1) / last.ranks
    cuts, owners = found(last, "exact")
    bound, load = Bound(last), int(received_of(region_counts(last, cuts), owners).max())
    assert bound.allows(load, owners)
    assert not bound.allows(load - 1, owners)
    least = bound.least()
    assert least <= load <= 1.02 * ideal
    rules = {"even": even_cuts(last.elements, last.ranks), "averaged": averaged_cuts(last, 0)}
    found_ratios = {name: float(ratios(last, rule, order)[0]) for name, rule in rules.items()}
    return {**found_ratios, "exact": load / ideal, "bound": least / ideal}
