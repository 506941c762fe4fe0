"""The best order of a cut: all methods together, what is proven, and on whose word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exact_pipeline import exact_step, few_stages
from examples import share
from tiny_pipelines import tiny, trial

from gapless.encodings.pipeline import methods as ordering
from gapless.encodings.pipeline.methods import IMPROVING, MAKING, Orders, best_orders
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.parameters import DEFAULTS, NAMES, Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.options import Deadline, SolveOptions
from gapless.solution import Solution, Status

QUICK = replace(DEFAULTS, heuristic_ops=1000, rounds=4, exact_steps=200)


def ordered(question: Problem, stages: Stages, parameters: Parameters = QUICK, **values: Any) -> Orders:
    options = SolveOptions()
    return best_orders(question, (), stages, options, Deadline(options), parameters, **values)


def asked(stages: Stages, **values: Any) -> Problem:
    """A question of the stages' placement."""
    if stages.count == stages.ranks:
        return trial(stages.ranks, stages.micro_batches, 1, **values)[0]
    placement = "v" if stages.rank[0] == stages.rank[-1] else "looped"
    return trial(stages.ranks, stages.micro_batches, 1, placement, **values)[0]


def test_the_trial_is_proven_without_a_solver() -> None:
    found = ordered(*trial(4, 8, 5), DEFAULTS)
    assert found.best is not None
    assert (found.best.timeline.step_s, found.proven, found.bound_s) == (286, True, 286)
    assert "exact" not in found.bounds_s


def test_once_one_of_many_ops_is_proven_no_more_orders_are_made() -> None:
    question, stages = trial(4, 8, 6, profile="uniform:f=10,b=10,w=10", hop=0.0)
    every = ordered(question, stages, replace(QUICK, quick_ops=1))
    few = ordered(question, stages, replace(QUICK, quick_ops=1), ends=True)
    assert every.best is not None
    assert few.best is not None
    assert few.proven
    assert few.best.timeline.step_s == every.best.timeline.step_s
    assert len(few.known) < len(every.known)
    assert len(ordered(question, stages, ends=True).known) == len(every.known)  # of few ops all are


def test_a_heuristic_that_falls_short_is_improved_until_it_is_proven() -> None:
    few = replace(DEFAULTS, heuristic_ops=1, methods=MethodChoice(without=("squeezed",)))
    found = ordered(*trial(8, 16, 10), few)
    assert found.best is not None
    assert (found.best.timeline.step_s, found.proven) == (590, True)
    assert found.best.method in ("exact", "neighbourhood")
    assert min(candidate.timeline.step_s for candidate in found.known) > 590


@pytest.mark.parametrize("seed", range(share(100)))
def test_tiny_pipelines_are_proven(seed: int) -> None:
    stages, best_s = tiny(seed)
    found = ordered(asked(stages), stages)
    assert found.best is not None
    assert (found.best.timeline.step_s, found.proven) == (best_s, True)


@pytest.mark.thorough("[5]")
@pytest.mark.parametrize("seed", range(share(300, 3)))
def test_few_ops_with_several_stages_a_rank_are_proven(seed: int) -> None:
    stages = few_stages(seed)
    best_s, proven_s = exact_step(stages, 20.0)
    found = ordered(asked(stages), stages, replace(DEFAULTS, heuristic_ops=1000))
    assert found.best is not None
    assert found.proven
    assert found.best.timeline.step_s == best_s or best_s > proven_s


@pytest.mark.parametrize("seed", range(share(60)))
def test_durations_without_a_common_unit_are_proven_as_well(seed: int) -> None:
    stages, _ = tiny(seed)
    stages = replace(stages, forward_s=stages.forward_s * np.sqrt(2), hop_s=stages.hop_s * np.pi)
    found = ordered(asked(stages), stages)
    assert found.best is not None
    assert found.proven
    assert found.bound_s <= found.best.timeline.step_s * (1 + 1e-9)


@pytest.mark.thorough
def test_without_the_exact_method_only_our_own_bounds_are_there() -> None:
    question, stages = trial(4, 8, 4, "v", method="search")
    found = ordered(question, stages)
    assert found.best is not None
    assert "exact" not in found.bounds_s
    assert found.bounds_s["load"] == 261
    assert found.bound_s == found.bounds_s["time-indexed"] == 281
    assert found.best.timeline.step_s <= 284


@pytest.mark.parametrize("method", ["1f1b", "zb-h1", "zero-bubble"])
def test_a_method_by_name_is_that_alone(method: str) -> None:
    found = ordered(*trial(4, 8, 5, method=method))
    assert [candidate.method for candidate in found.known] == [method]
    assert found.best is found.known[0]


def test_less_room_than_for_one_micro_batch_has_no_order() -> None:
    question, stages = trial(4, 8, 1)
    found = ordered(question, replace(stages, memory_bytes=stages.memory_bytes - 1))
    assert found.best is None
    assert not found.proven


def test_orders_are_offered_as_they_get_better() -> None:
    offered: list[Candidate] = []
    few = replace(QUICK, methods=MethodChoice(without=("squeezed",)))
    found = ordered(*trial(8, 16, 10), few, offer=offered.append)
    ranks = [candidate.rank for candidate in offered]
    assert ranks == sorted(ranks, reverse=True)
    assert offered[-1] is found.best
    assert len(offered) > 1


def unreached() -> tuple[Stages, float]:
    """A tiny pipeline whose best order is slower than our own bounds."""
    found = (tiny(seed) for seed in range(100))
    return next((stages, best_s) for stages, best_s in found if ordered(asked(stages, method="search"), stages)
                .bound_s < best_s)  # fmt: skip


@pytest.mark.thorough("FEASIBLE")
@pytest.mark.parametrize("second", [Status.OPTIMAL, Status.FEASIBLE])
def test_an_optimum_on_a_solvers_word_is_confirmed_or_it_is_none(
    second: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, best_s = unreached()
    seen: list[SolveOptions] = []

    def confirm(model: object, claimed: Solution, options: SolveOptions, solver: str) -> Solution:
        assert (claimed.status, solver) == (Status.OPTIMAL, "cpsat")
        seen.append(options)
        return claimed if second is Status.OPTIMAL else replace(claimed, status=second, bound=0.0)

    monkeypatch.setattr(ordering, "confirmed", confirm)
    found = ordered(asked(stages), stages)
    assert found.best is not None
    assert found.best.timeline.step_s == best_s
    assert found.proven == (second is Status.OPTIMAL)
    assert seen[0].seed == 1


@pytest.mark.parametrize(
    ("choice", "methods"),
    [
        (MethodChoice(only=("gpipe",)), {"gpipe"}),
        (MethodChoice(only=("gpipe", "neighbourhood")), {"gpipe", "neighbourhood", "zero-bubble"}),
        (MethodChoice(only=("1f1b", "exact")), {"1f1b", "exact", "zero-bubble"}),
        (
            MethodChoice(without=("squeezed", "zero-bubble", "exact", "neighbourhood")),
            {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"},
        ),
    ],
)
def test_a_parameter_file_leaves_methods_out(choice: MethodChoice, methods: set[str]) -> None:
    offered: list[Candidate] = []
    found = ordered(*trial(4, 8, 8), replace(QUICK, methods=choice), offer=offered.append)
    assert found.best is not None
    assert {candidate.method for candidate in (*found.known, *offered, found.best)} <= methods
    assert "exact" not in found.bounds_s or choice.allows("exact")


def test_parameters_name_the_methods_that_there_are() -> None:
    assert set(NAMES) == {method.name for method in (*MAKING, *IMPROVING)}
    with pytest.raises(InputError, match=r"methods\.only: 'zb-h3' is no method"):
        Parameters(methods=MethodChoice(only=("zb-h3",)))
