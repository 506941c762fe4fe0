"""Plans that offload, executed on a CPU whose copies are emulated: bits, bytes and seconds as planned.

Without torch these tests are skipped.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch_models import Case, cases
from torch_steps import keep_all, left_by_eager, left_by_plan, offloading_plan

from gapless.errors import InputError
from gapless.torch.capture.graph import capture
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.timing import profile
from gapless.torch.devices import Cpu
from gapless.torch.run import run
from gapless.torch.run.events import planned_calls, planned_copies
from gapless.torch.run.host_link import HostLink, link_of

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def models() -> dict[str, Case]:
    return cases()


@pytest.fixture(scope="module")
def gpt(models: dict[str, Case]) -> CapturedStep:
    """With times that nobody measured: a millisecond each."""
    step = capture(*models["gpt"], name="gpt")
    return replace(step, graph=step.graph.with_implementations(lambda _, impl: replace(impl, duration_s=1e-3)))


def test_what_travels_comes_back_bit_by_bit(models: dict[str, Case], gpt: CapturedStep) -> None:
    model, arguments = models["gpt"]
    expected = left_by_eager(model, lambda its: its(*arguments), steps=2)
    for seed in range(3):
        plan = offloading_plan(gpt, seed)
        assert planned_copies(plan)
        assert left_by_plan(model, plan, *arguments, steps=2).differs_from(expected) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["gpt", "bert", "fcn", "resnet", "unet"])
def test_a_plan_that_offloads_keeps_to_its_peak(models: dict[str, Case], kind: str) -> None:
    model, arguments = models[kind]
    step = profile(capture(model, arguments, name=kind), repeats=1)
    expected = left_by_eager(model, lambda its: its(*arguments), steps=2)
    for seed in range(4):
        plan = offloading_plan(step, seed)
        found = left_by_plan(model, plan, *arguments, steps=2)
        assert found.differs_from(expected) == []
        assert found.peak_bytes <= plan.peak_bytes


@pytest.mark.parametrize("seed", [0, 1])
def test_a_step_takes_the_time_of_its_copies_where_these_are_all_that_takes_time(
    models: dict[str, Case], gpt: CapturedStep, seed: int
) -> None:
    plan = offloading_plan(gpt, seed, step_copies=1e-6)
    step = run(plan, models["gpt"][0], tolerance=None)
    predicted_s = float(plan.schedule.end_s.max())
    for _ in range(2):
        assert Cpu(CPU).timed_s(lambda: step(*models["gpt"][1])) == pytest.approx(predicted_s, rel=0.01)


def test_copies_begin_and_end_before_calls_in_order(gpt: CapturedStep) -> None:
    plan = offloading_plan(gpt, 2)
    copies, calls = planned_copies(plan), planned_calls(plan)
    assert sorted(copy.place for copy in copies) == list(range(len(copies)))
    for copy in copies:
        assert copy.values
        assert 0 < copy.leaves <= copy.gone <= copy.back < len(calls)
        assert copy.leaves <= copy.returns <= copy.back


def test_emulated_copies_take_turns_each_way() -> None:
    link, clock = HostLink(CPU, (10.0, 20.0)), Cpu(CPU)
    begin_s = clock.now_s()
    values = [torch.arange(8.0)[:4], torch.arange(6.0).view(2, 3).T]
    for number, value in enumerate(values):  # 32 and 24 bytes, whole memories
        link.leave(number, (value,))
    link.gone(1)
    assert clock.now_s() - begin_s == pytest.approx(560, rel=0.01)
    link.gone(0)
    link.come(1)
    link.come(0)
    ((first,), (second,)) = (link.back(1), link.back(0))
    assert clock.now_s() - begin_s == pytest.approx(560 + 1120, rel=0.01)
    assert torch.equal(first, values[1])
    assert first.stride() == values[1].stride()
    assert torch.equal(second, values[0])


def test_a_step_that_breaks_off_leaves_nothing_on_its_way() -> None:
    link = HostLink(CPU, (1e-9, 1e-9))
    link.leave(0, (torch.ones(100),))
    link.stop()
    link.come(0)  # it is on the host
    assert torch.equal(*link.back(0), torch.ones(100))


def test_copies_between_anything_but_a_device_and_its_host_are_refused(gpt: CapturedStep) -> None:
    with pytest.raises(InputError, match="between a device and its host"):
        link_of(keep_all(gpt).schedule, CPU)
    with pytest.raises(InputError, match="must be cpu or cuda"):
        link_of(offloading_plan(gpt, 1).schedule, torch.device("meta"))
    with pytest.raises(InputError, match="island"):
        HostLink(CPU, (1.0, 1.0)).leave(0, (None,))  # type: ignore[arg-type]
