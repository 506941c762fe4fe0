"""The line through what flows took: exact without noise, not moved by outliers, and within its interval."""

from __future__ import annotations

import numpy as np
import pytest
from examples import share

from gapless.topologies.measured.experiments import Flow, Sample
from gapless.topologies.measured.regression import fit_line

ALPHA_S, BETA = 5e-6, 1e-9
FLOWS = [
    Flow(0, 1, chunks, size, at_once, warm)
    for size in (8, 2**16, 2**18, 2**20)
    for chunks in (1, 4)
    for at_once, warm in ((False, 0), (True, 0), (True, 2**17))
    if size > 8 or not at_once
]


def taken_s(flow: Flow) -> float:
    return flow.latencies * ALPHA_S + flow.sent_bytes * BETA


def test_a_flow_waits_for_alpha_once_a_chunk_in_turn_and_once_at_once() -> None:
    assert Flow(0, 1, 4, 100, at_once=False).latencies == 8
    assert Flow(0, 1, 4, 100, at_once=True).latencies == 2
    assert Flow(0, 1, 4, 100, at_once=True, warm_bytes=9).latencies == 0
    assert Flow(0, 1, 4, 100, at_once=True).sent_bytes == 400


def test_without_noise_costs_are_exact() -> None:
    line = fit_line([Sample(flow, taken_s(flow)) for flow in FLOWS])
    assert line.alpha_s == pytest.approx(ALPHA_S, rel=1e-6)
    assert line.beta_s_per_byte == pytest.approx(BETA, rel=1e-6)
    assert line.outliers == 0


def test_outliers_count_nothing_and_are_counted() -> None:
    rng = np.random.default_rng(0)
    samples = [Sample(flow, taken_s(flow) * rng.normal(1, 0.01)) for flow in FLOWS * 5]
    late = [Sample(each.flow, each.time_s * 5) if k % 10 == 0 else each for k, each in enumerate(samples)]
    line = fit_line(late)
    assert line.outliers >= len(samples) // 10
    assert line.alpha_s == pytest.approx(ALPHA_S, rel=0.02)
    assert line.beta_s_per_byte == pytest.approx(BETA, rel=0.02)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng, held, count = np.random.default_rng(1), np.zeros(2), max(100, share(2000))
    for _ in range(count):
        line = fit_line([Sample(flow, taken_s(flow) * rng.normal(1, 0.03)) for flow in FLOWS * 2])
        held += [
            abs(line.alpha_s - ALPHA_S) <= line.alpha_error_s,
            abs(line.beta_s_per_byte - BETA) <= line.beta_error_s_per_byte,
        ]
    assert (held / count > 0.9).all()


def test_time_that_begins_late_doesnt_move_beta() -> None:
    late_s = 12_000 * BETA
    samples = [Sample(flow, taken_s(flow) - late_s * flow.follows) for flow in FLOWS]
    assert fit_line(samples).beta_s_per_byte == pytest.approx(BETA, rel=1e-6)


def test_no_cost_is_negative() -> None:
    line = fit_line([Sample(flow, flow.sent_bytes * BETA * (0.9 if flow.chunks == 4 else 1)) for flow in FLOWS])
    assert line.alpha_s >= 0
    assert line.beta_s_per_byte == pytest.approx(BETA, rel=0.2)


def test_few_samples_have_no_interval() -> None:
    line = fit_line([Sample(flow, taken_s(flow)) for flow in (Flow(0, 1, 1, 8, False), Flow(0, 1, 1, 2**20, True))])
    assert line.alpha_error_s == line.beta_error_s_per_byte == np.inf
    assert line.off_by(8, 2**20) == np.inf
