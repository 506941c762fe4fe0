"""The hook that branches by bucket, in a lone rank. Without torch these tests are skipped."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.profiles.compressors.method import Bucket, Exchange, Message
from gapless.torch.ddp import hook
from gapless.torch.ddp.emulation import Clock, Sending
from gapless.torch.ddp.hook import HookState, reduce_bucket


@dataclass
class Given:
    """A bucket as DDP passes it."""

    flat: torch.Tensor
    owners: list[torch.Tensor]

    def buffer(self) -> torch.Tensor:
        return self.flat

    def gradients(self) -> list[torch.Tensor]:
        return list(self.flat.split(len(self.flat) // len(self.owners)))

    def parameters(self) -> list[torch.Tensor]:
        return self.owners

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


ONE, TWO, THREE, FOUR = (torch.zeros(1) for _ in range(4))


def sent(state: HookState, owners: list[torch.Tensor], *gradient: float) -> list[float]:
    """What arrives of a gradient."""
    found = reduce_bucket(state, Given(torch.tensor(gradient), owners)).wait()
    return [float(value) for value in found]


def test_what_was_not_sent_is_added_to_the_next_gradient() -> None:
    state = HookState("topk:0.5")
    assert sent(state, [ONE, TWO], 4.0, 3.0) == [4.0, 0.0]
    assert sent(state, [ONE, TWO], 4.0, 3.0) == [0.0, 6.0]
    assert sent(state, [ONE, TWO], 0.0, 1.0) == [4.0, 0.0]


def test_without_error_feedback_it_is_lost() -> None:
    state = HookState("topk:0.5", error_feedback=False)
    assert sent(state, [ONE, TWO], 4.0, 3.0) == [4.0, 0.0]
    assert sent(state, [ONE, TWO], 4.0, 3.0) == [4.0, 0.0]


def test_errors_go_with_their_parameters_into_other_buckets() -> None:
    state = HookState("topk:0.5")
    sent(state, [ONE, TWO], 4.0, 3.0)
    sent(state, [THREE, FOUR], 4.0, 3.0)
    assert sent(state, [TWO, ONE], 4.0, 3.5) == [7.0, 0.0]
    assert sent(state, [THREE, FOUR], 4.0, 3.0) == [0.0, 6.0]
    assert sent(state, [ONE, TWO], 4.0, 3.0) == [7.5, 0.0]
    assert sent(state, [TWO, THREE], 2.0, 0.0) == [5.0, 0.0]


@pytest.mark.parametrize("mode", ["rand-k:0.1", "rand-k-gathered:0.1", "topk:0.1", "onebit", "fp16"])
@pytest.mark.parametrize("place", [0, 7, 19])
def test_an_overflow_in_an_entry_that_is_not_sent_arrives_and_the_step_is_as_if_it_had_not_been(
    mode: str, place: int
) -> None:
    state, other = HookState(mode), HookState(mode)
    values = [float(number % 7) for number in range(20)]
    overflown = [*values[:place], float("-inf"), *values[place + 1 :]]
    for each in (state, other):
        sent(each, [ONE, TWO], *values)
    assert not torch.isfinite(torch.tensor(sent(state, [ONE, TWO], *overflown))).all()
    assert sent(state, [ONE, TWO], *values) == sent(other, [ONE, TWO], *values)


def test_a_step_that_overflows_leaves_no_error_that_is_not_a_number() -> None:
    state = HookState("topk:0.5")
    sent(state, [ONE, TWO], float("inf"), float("inf"))
    assert sent(state, [ONE, TWO], 4.0, 3.0) == [4.0, 0.0]


def test_the_gradient_itself_is_not_changed_by_what_compresses_it() -> None:
    given = Given(torch.tensor([4.0, 3.0]), [ONE])
    state = HookState("topk:0.5")
    for _ in range(2):
        reduce_bucket(state, given).wait()
    assert given.flat.tolist() == [4.0, 3.0]


def test_each_bucket_goes_in_its_own_mode() -> None:
    modes = {frozenset({id(ONE), id(TWO)}): Sending("topk:0.5"), frozenset({id(THREE)}): Sending("fp16")}
    state = HookState(modes, is_measured=True)
    assert sent(state, [TWO, ONE], 1.0, 3.0) == [0.0, 3.0]
    assert sent(state, [THREE], 1.0, 2.0**-30) == [1.0, 0.0]
    assert [(each.mode, each.size_bytes) for each in state.sent] == [("topk:0.5", 8), ("fp16", 8)]


def test_a_bucket_that_is_not_the_plans_goes_plain_twice_and_is_then_refused() -> None:
    state = HookState({frozenset({id(ONE)}): Sending("topk:0.5")})
    for _ in range(2):
        assert sent(state, [TWO], 4.0, 3.0) == [4.0, 3.0]
    with pytest.raises(InputError, match="bucket 0: must be one of the plan's from the third iteration on; gradients"):
        sent(state, [TWO], 4.0, 3.0)


def test_emulated_time_is_what_the_sending_says() -> None:
    clock = Clock()
    sending = Sending("topk:0.5", encode_s=2e-3, send_s=1e-3, decode_s=5e-4)
    state = HookState({frozenset({id(ONE)}): sending}, clock=clock, is_measured=True)
    for _ in range(2):
        sent(state, [ONE], 4.0, 3.0)
    assert clock.at_s == pytest.approx(4e-3)
    assert [each.send_s for each in state.sent] == pytest.approx([1e-3, 1e-3], rel=1e-6)
    state.clear()
    assert state.sent == []


class Breaking:
    """Fails when its only message, or its first of two, has arrived."""

    error = "feedback"
    feeds_back = True
    entrywise = ()

    def __init__(self, is_last: bool) -> None:
        self.is_last = is_last

    def exchange(self, bucket: Bucket) -> Exchange:
        yield Message("all_reduce", bucket.gradient, self.is_last)
        raise ValueError("broken")


@pytest.mark.parametrize("is_last", [True, False])
def test_what_goes_wrong_on_another_thread_is_raised_where_the_mean_is_awaited(
    monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    monkeypatch.setattr(hook, "method_of", lambda mode: Breaking(is_last))
    future = reduce_bucket(HookState("breaking"), Given(torch.ones(2), [ONE]))
    with pytest.raises(ValueError, match="broken"):
        future.wait()


def test_training_keeps_no_record_of_what_it_sends() -> None:
    state = HookState("topk:0.5")
    for _ in range(3):
        sent(state, [ONE], 4.0, 3.0)
    assert state.sent == []


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(InputError, match=r"mode: must be one of none, .*, got 'gzip'"):
        HookState("gzip")
