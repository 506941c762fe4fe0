"""Strategies side by side under DDP, in processes of their own. Without torch these tests are skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import assigned_groups
from gapless.torch.ddp.comparison import Measured, RunTask, Strategy, compare
from gapless.torch.ddp.emulation import Sending
from gapless.torch.ddp.measuring import measure_gradients
from gapless.torch.run.workload import load_named

NET, GPT = "train:net,layers=4,width=4,batch=2,size=8", "train:gpt,layers=2,hidden=32,sequence=16"
pytestmark = pytest.mark.usefixtures("one_thread")


def strategy(name: str, ends: list[int], modes: list[str], **options: bool) -> Strategy:
    groups = tuple(zip([0, *ends[:-1]], [end - 1 for end in ends], strict=True))
    return Strategy(name, groups, tuple(Sending(mode) for mode in modes), **options)


def task(model: str, ranks: int = 2, emulated: bool = False) -> RunTask:
    """Four groups in modes of their own, DDP's own buckets, and one in half precision."""
    work = load_named(model)
    found = measure_gradients(work.model, work.loss_of, steps=1, warm_up=0)
    count = len(found.names)
    default = [last + 1 for _, last in assigned_groups(found.size_bytes, [1, 25])]
    strategies = (
        strategy("mixed", [1, 3, count - 2, count], ["topk:0.1", "plain", "powersgd:1", "fp16"]),
        strategy("default", default, ["plain"] * len(default), is_default=True),
        strategy("one", [count], ["plain"]),
    )
    made = RunTask(model, "measured", 0, found.names, found.size_bytes, strategies, repeats=2, ranks=ranks, wait_s=60.0)
    if not emulated:
        return made
    times = {"encode_s": 1e-4, "send_s": 2e-3, "decode_s": 1e-4}
    slow = tuple(
        replace(each, sendings=tuple(replace(sending, **times) for sending in each.sendings)) for each in strategies
    )
    return replace(made, strategies=slow, forward_s=2e-3, gaps_s=(1e-4,) * count)


def check_found(found: tuple[Measured, ...], repeats: int = 2) -> None:
    mixed, default, one = found
    assert [each.name for each in found] == ["mixed", "default", "one"]
    assert all(each.buckets and len(each.steps_s) == repeats for each in found)
    for plain in (default, one):
        assert (plain.equal, plain.error, plain.mean_error) == (plain.gradients, 0.0, 0.0)
    assert 2 <= mixed.equal < mixed.gradients
    assert mixed.error > mixed.mean_error > 0


@pytest.mark.parametrize("model", [NET, pytest.param(GPT, marks=pytest.mark.thorough)])
def test_buckets_are_the_strategys_and_what_is_plain_has_ddps_bits(model: str) -> None:
    check_found(compare(task(model)))


@pytest.mark.thorough
@pytest.mark.parametrize("model", [NET, GPT])
def test_four_processes_agree(model: str) -> None:
    check_found(compare(task(model, ranks=4)))


@pytest.mark.thorough
def test_an_emulated_step_takes_its_time_at_least() -> None:
    """Forward, all gaps, and the last group's encoding, send and decoding."""
    made = task(NET, emulated=True)
    found = compare(made)
    least_s = 2e-3 + 1e-4 * len(made.parameter_names) + 1e-4 + 2e-3 + 1e-4
    assert all(step_s >= least_s for each in found for step_s in each.steps_s)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": "train:net,layers=4,width=8,batch=2,size=8"},
            r"parameter '0\.weight': must have 432 bytes as in the plan",
        ),
        ({"model": "train:net,layers=3,width=4,batch=2,size=8"}, "must be in the (plan|model)|must have"),
        (
            {"parameter_names": tuple("abcdefghijklmnopqrst")[:16]},
            "must be in the plan of 'measured'; measure the model",
        ),
        ({"model": "train:net,size=1"}, "model: size must be 4 at least for 6 layers, got 1"),
    ],
)
def test_a_plan_of_another_model_is_refused_before_any_process(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(replace(task(NET), **change))  # type: ignore[arg-type]


def test_unknown_modes_are_refused_before_any_process() -> None:
    made = task(NET)
    count = len(made.parameter_names)
    with pytest.raises(InputError, match=r"mode: must be one of none, fp16, .*, got 'gzip'"):
        compare(replace(made, strategies=(strategy("own", [count], ["gzip"]),)))
