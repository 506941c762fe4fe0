"""Plans that offload, executed on a CPU whose link to the host is emulated: predicted and measured time and peak.

`OMP_NUM_THREADS=1 pytest tests/benchmarks/test_monet_host_link.py --tables FOLDER`: each model within a share of
eager's peak, at two rates, 8 s a solve (`--limit-s`). Times are the processor's, on one thread, with what a step waits
for copies; steps take turns with those of the plan that keeps all, whose time is predicted from the same operators.
What is asserted: eager's bits, the measured peak within the plan's but for the old values of buffers, and a time within
15 % of the predicted one. That is by pairs of neighbouring steps: what the plan takes over what the step that keeps all
takes beside it, as predicted and as measured, since a busy machine changes both alike.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from rival_models import made
from torch_steps import keep_all

import gapless
from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.topologies.host import HostLink
from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.run import run
from gapless.torch.run.comparison import Runner, alternated, eager_peak_bytes, eager_runner, measured, outcome_of
from gapless.torch.run.events import planned_copies
from gapless.torch.run.step_plan import planned

LIMIT_S, STEPS = 8.0, 15
MIB = 2**20

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("kind", ["gpt", "unet", "resnet"])
def test_emulated_copies_take_the_predicted_time(
    tables: ResultTables, limit_s: Callable[[float], float], sized: Any, tmp_path: Path, kind: str
) -> None:
    work = made(kind, sized(False, True))
    step = capture(work.model, work.inputs, work.loss, targets=work.targets, name=kind)
    step = profile(step, tmp_path / "times.json")
    all_kept, reference = keep_all(step), outcome_of(work, eager_runner(work))
    keeping = Runner("keep all", functools.partial(work.train, run(all_kept, work.model, tolerance=None)))
    keeping_s = float(all_kept.schedule.end_s.max())
    kept_bytes, eager_bytes = sum(buffer.nbytes for buffer in work.model.buffers()), eager_peak_bytes(work)
    for share, rate in ((0.7, 0.1), (0.7 if kind == "resnet" else 0.5, 0.4)):  # half of ResNet's fits nothing
        problem = Problem(step.graph, int(share * eager_bytes), link=HostLink(rate * 1e9, 64 * 10**9))
        result = gapless.solve(problem, SolveOptions(gap=0.005, time_limit_s=limit_s(LIMIT_S), threads=1))
        plan = planned(step, result)
        runner = Runner("offloading", functools.partial(work.train, run(plan, work.model, tolerance=None)))
        found = measured(work, runner, reference)
        plain, taken = alternated(work, [keeping, runner], sized(STEPS, 1))
        assert result.report is not None
        assert found.peak_bytes is not None
        predicted_s = result.report.makespan_s
        pairs = [its_s / plain_s for its_s, plain_s in zip(taken, plain, strict=True)]
        ratio = statistics.median(pairs) * keeping_s / predicted_s
        tables.table("monet_host_link", "Plans that offload: predicted and measured, emulated copies").add(
            f"{kind}-{share}-{rate}",
            copies=len(planned_copies(plan)),
            predicted_ms=round(1e3 * predicted_s, 1),
            measured_ms=round(1e3 * statistics.median(taken), 1),
            ratio=round(ratio, 3),
            predicted_MiB=round(plan.peak_bytes / MIB, 1),
            measured_MiB=round(found.peak_bytes / MIB, 1),
            eager_MiB=round(eager_bytes / MIB, 1),
        )
        assert found.is_equal
        assert found.peak_bytes <= plan.peak_bytes + kept_bytes
        assert abs(ratio - 1.0) <= sized(0.15, math.inf)  # one pair of steps says nothing of time
