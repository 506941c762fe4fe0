"""A plan corrected while it runs: as it was where errors are as expected, else what measured errors ask for."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from compression_traces import random_trace, small_trace

from gapless.encodings.ranks.decision import ModeDecision
from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.solve import solve
from gapless.encodings.ranks.training.corrected import CorrectedPlan
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.compression.control import EpochLook, Setting
from gapless.profiles.compression.trace import CompressionTrace

LAYERS = small_trace().layer_names


def planned(trace: CompressionTrace, ratio: float, phases: str) -> tuple[Problem, np.ndarray]:
    whole = int(trace.steps.sum()) * int(trace.sent_bytes.sum(axis=0).max())
    problem = Problem(trace, int(ratio * whole), phases=phases)
    decision = solve(problem, SolveOptions()).decision
    assert isinstance(decision, ModeDecision)
    modes = [[trace.modes.index(mode) for mode in row] for row in decision.by_epoch]
    return problem, np.array(modes, dtype=np.int64)


def ran(controller: CorrectedPlan, trace: CompressionTrace, truth: np.ndarray) -> list[Setting]:
    """The settings of all epochs of a training whose errors are `truth`."""
    settings = [controller.start(trace.layer_names)]
    for epoch in range(trace.epoch_count):
        settings.append(controller.after(EpochLook(trace.norm[epoch], False, truth[epoch])))
    return settings[:-1]


@pytest.mark.parametrize("phases", ["static", "epoch"])
@pytest.mark.parametrize("off", [1.0, 1.2, 0.8])
def test_errors_within_the_tolerance_change_nothing(phases: str, off: float) -> None:
    trace = small_trace()
    _, modes = planned(trace, 0.6, phases)
    controller = CorrectedPlan(trace, modes)
    found = ran(controller, trace, trace.error * off)
    assert [setting.modes for setting in found] == [tuple(trace.modes[mode] for mode in row) for row in modes]
    assert controller.corrected == []


@pytest.mark.parametrize("phases", ["static", "epoch"])
@pytest.mark.parametrize("seed", range(6))
def test_errors_of_another_training_are_planned_for_from_the_first_look_on(phases: str, seed: int) -> None:
    """The trace has one layer's errors for another's; with the truth known after an epoch, the rest is the best."""
    trace = random_trace(seed, epochs=5, layers=4)
    problem, modes = planned(trace, 0.6, phases)
    factor = np.random.default_rng(seed).permutation([0.02, 1.0, 5.0, 40.0])[None, :, None]
    truth = replace(trace, error=trace.error * factor)
    controller = CorrectedPlan(trace, modes)
    found = ran(controller, trace, truth.error)
    assert controller.corrected[:1] == [1]
    rows = np.array([[trace.modes.index(mode) for mode in setting.modes] for setting in found])
    true = Problem(truth, problem.data_bytes, phases=phases)
    assert true.spoiled(rows) <= true.spoiled(modes) * (1 + 1e-9)
    assert true.sent_bytes(rows) <= true.sent_bytes(modes)
    rest = replace(truth, steps=truth.steps[1:], learning_rate=truth.learning_rate[1:], error=truth.error[1:],
                   norm=truth.norm[1:], deviation_ratio=truth.deviation_ratio[1:])  # fmt: skip
    left = Problem(rest, true.sent_bytes(modes) - int(true.cost[0, np.arange(4), modes[0]].sum()), phases=phases)
    best = solve(left, SolveOptions()).decision
    assert isinstance(best, ModeDecision)
    expected = np.array([[trace.modes.index(mode) for mode in row] for row in best.by_epoch])
    assert left.spoiled(rows[1:]) == pytest.approx(left.spoiled(expected))


def test_a_layer_whose_error_was_expected_to_be_nothing_is_expected_as_measured() -> None:
    trace = random_trace(2, epochs=3, layers=2)
    error = trace.error.copy()
    error[:, 0] = 0.0
    wrong = replace(trace, error=error)
    _, modes = planned(wrong, 0.6, "epoch")
    controller = CorrectedPlan(wrong, modes)
    ran(controller, wrong, trace.error * np.array([1000.0, 1.0])[None, :, None])
    assert controller.corrected
    assert (controller.modes[-1, 0] >= modes[-1, 0]).all()


def test_layers_may_stand_in_another_order_in_the_model() -> None:
    trace = small_trace()
    _, modes = planned(trace, 0.6, "epoch")
    order = [3, 1, 4, 0, 2]
    controller = CorrectedPlan(trace, modes)
    first = controller.start([LAYERS[place] for place in order])
    assert first.modes == tuple(trace.modes[modes[0, place]] for place in order)
    controller.after(EpochLook(trace.norm[0], False, trace.error[0][order]))
    assert controller.corrected == []


def test_it_looks_at_steps_evenly_apart_and_goes_on_from_what_was_saved() -> None:
    trace = small_trace()
    _, modes = planned(trace, 0.6, "epoch")
    assert [step for step in range(5) if CorrectedPlan(trace, modes, looks=2).is_looked_at(step)] == [1, 3]
    first, second = CorrectedPlan(trace, modes), CorrectedPlan(trace, modes)
    truth = trace.error * np.array([0.01, 1, 1, 1, 30])[None, :, None]
    expected = ran(first, trace, truth)
    third = CorrectedPlan(trace, modes)
    third.start(LAYERS)
    third.after(EpochLook(trace.norm[0], False, truth[0]))
    second.start(LAYERS)
    found = [second.load_state_dict(json.loads(json.dumps(third.state_dict())))]
    found += [second.after(EpochLook(trace.norm[epoch], False, truth[epoch])) for epoch in range(1, 5)]
    assert found == expected[1:]
    assert second.corrected == first.corrected


def test_what_does_not_go_together_is_refused() -> None:
    trace = small_trace()
    _, modes = planned(trace, 0.6, "epoch")
    with pytest.raises(InputError, match="modes: must have shape"):
        CorrectedPlan(trace, modes[:2])
    with pytest.raises(InputError, match="tolerance: must be >= 0"):
        CorrectedPlan(trace, modes, tolerance=-1.0)
    with pytest.raises(InputError, match="parameter 'head': must be in the model and in the plan"):
        CorrectedPlan(trace, modes).start(LAYERS[1:])
