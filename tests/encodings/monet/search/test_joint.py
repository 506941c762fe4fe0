"""MONeT's own search in parts: any can be left out or given alone, and what remains keeps to what it promises."""

from __future__ import annotations

import pytest

import gapless
from gapless.encodings.monet.parameters import PARTS, Bounding, Cooling, Parameters
from gapless.encodings.monet.search import joint
from gapless.encodings.monet.search.joint import FIRST, IN_ORDER
from gapless.encodings.monet.search.state import State
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.result import Result
from gapless.solution import StopReason

LITTLE = {
    "cooling": Cooling(steps_per_node=5, patience=1),
    "bounding": Bounding(steps=5, more_steps=5, exact_steps=2, proof_steps=2, start_steps=5),
}
QUESTION = {"graph": "vgg16", "batch": 64, "budget": "0.7x", "threads": 1}


def solved(choice: MethodChoice) -> Result:
    return gapless.monet.solve(**QUESTION, parameters=Parameters(**LITTLE, methods=choice))  # type: ignore[arg-type]


def test_parts_have_names_that_parameters_know() -> None:
    assert tuple(part.name for part in (*FIRST, *IN_ORDER)) == PARTS


@pytest.mark.parametrize("name", PARTS)
def test_each_part_can_be_left_out(name: str) -> None:
    result = solved(MethodChoice(without=(name,)))
    assert result.valid
    assert result.solution.bound is not None


def test_annealing_finds_better_plans_and_a_relaxation_a_better_bound() -> None:
    unbound, unsearched = (solved(MethodChoice(without=(name, "exact"))) for name in ("relaxation", "annealing"))
    assert unbound.details["bound_windows"] == 0 < unsearched.details["bound_windows"]
    assert unsearched.details["states"] < unbound.details["states"]
    assert unbound.solution.objective < unsearched.solution.objective  # type: ignore[operator]
    assert unbound.solution.bound < unsearched.solution.bound  # type: ignore[operator]
    assert "relaxation" not in unbound.timings
    assert "annealing" not in unsearched.timings


def test_a_solve_that_is_cut_short_keeps_what_its_relaxations_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = solved(MethodChoice())

    def cut_short(state: State) -> None:
        raise KeyboardInterrupt  # as a late solve is left: with the best plan that was offered

    monkeypatch.setattr(joint, "confirm", cut_short)
    cut = solved(MethodChoice())
    assert cut.solution.stop_reason is StopReason.INTERRUPTED
    assert cut.solution.objective == whole.solution.objective
    assert cut.solution.bound == whole.solution.bound > whole.details["unlimited_s"]  # type: ignore[operator]


def test_rules_alone_give_a_plan() -> None:
    result = solved(MethodChoice(only=("rules",)))
    assert result.valid
    assert result.details["bound_windows"] == 0


def test_names_that_no_part_has_are_refused() -> None:
    with pytest.raises(InputError, match=r"methods\.without: 'anealing' is no method"):
        Parameters(methods=MethodChoice(without=("anealing",)))
    with pytest.raises(InputError, match="methods: must leave one of rules"):
        Parameters(methods=MethodChoice(without=PARTS))
