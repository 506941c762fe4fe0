"""Models whose calls follow plans: the loop around them is PyTorch's, to the bit.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch import planned, unplanned
from gapless.torch.devices import measure_peak


class Net(nn.Module):
    """Batch norm, dropout, a branch that only one output reads, and a layer that none does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(6, 24), nn.BatchNorm1d(24), nn.Dropout(0.3)
        self.last, self.side, self.idle = nn.Linear(24, 6), nn.Linear(24, 3), nn.Linear(2, 2)
        self.calls = 0

    def forward(self, given: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        self.calls += 1
        hidden = self.drop(self.norm(self.first(given)).relu())
        return {"out": self.last(hidden) * scale, "side": self.side(hidden), "hidden": hidden, "count": 3}


def pair(budget: str | int = "0.98x", **options: Any) -> tuple[Net, Net]:
    """A model, and a copy whose calls follow plans; the default leaves room for the workspaces of several threads."""
    torch.manual_seed(0)
    eager = Net()
    return eager, planned(copy.deepcopy(eager), budget, report=lambda _: None, **options)


def examples(rows: int = 8) -> torch.Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(5))


def trained(model: nn.Module, steps: int, step: Callable[[nn.Module, int], torch.Tensor]) -> list[float]:
    """Losses of a loop with AdamW and clipping."""
    optimiser, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for number in range(steps):
        torch.manual_seed(number)
        optimiser.zero_grad()
        losses.append(step(model, number).item())
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
    return losses


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: its.grad for name, its in model.named_parameters() if its.grad is not None}


def test_loop_with_accumulation_clipping_and_a_small_last_batch_has_eagers_bits() -> None:
    eager, model = pair()

    def step(its: nn.Module, number: int) -> torch.Tensor:
        total = torch.zeros(())
        for part in range(2):
            given = examples(5 if number == 2 and part else 8)
            found = its(given, scale=2.0)
            loss = (found["out"] - given).pow(2).mean() / 2
            if number % 2:
                loss = loss + found["side"].abs().mean()
            loss.backward()
            total += loss.detach()
        return total

    assert trained(model, 4, step) == trained(eager, 4, step)
    assert same(state_of(model), state_of(eager))
    assert len(model.forward.plans) == 2


@pytest.mark.thorough
def test_output_that_the_loss_leaves_out_gives_no_gradient() -> None:
    eager, model = pair()
    for its in (eager, model):
        torch.manual_seed(1)
        its(examples())["out"].sum().backward()
    assert "side.weight" not in gradients(model)
    assert same(gradients(model), gradients(eager))


def test_what_is_no_tensor_comes_back_as_it_was() -> None:
    _, model = pair()
    found = model(examples())
    assert found["count"] == 3
    assert [value.requires_grad for value in found.values() if isinstance(value, torch.Tensor)] == [True] * 3


def test_arguments_get_their_gradients() -> None:
    eager, model = pair()
    given = [examples().requires_grad_() for _ in range(2)]
    for its, argument in zip((eager, model), given, strict=True):
        torch.manual_seed(1)
        (its(argument * 2)["out"] * argument).sum().backward()
    assert torch.equal(*(argument.grad for argument in given))


def test_hooks_see_each_gradient_in_the_order_of_the_plan() -> None:
    _, model = pair()
    seen: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    found = model(examples())
    (found["out"].sum() + found["side"].sum()).backward()
    assert sorted(seen) == sorted(gradients(model))
    assert seen.index("last.weight") < seen.index("first.weight")


@pytest.mark.thorough
def test_scaler_and_autocast_have_eagers_bits() -> None:
    eager, model = pair()
    losses = []
    for its in (eager, model):
        scaler, optimiser = torch.amp.GradScaler("cpu", init_scale=8.0), torch.optim.SGD(its.parameters(), lr=0.1)
        for number in range(2):
            torch.manual_seed(number)
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = its(examples())["out"].float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            losses.append(loss.item())
    assert losses[:2] == losses[2:]
    assert same(state_of(model), state_of(eager))


class Attention(nn.Module):
    """Attention with dropout computes in float32 within autocast, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(given).chunk(3, -1)
        return self.outer(nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1))


def test_backward_pass_runs_outside_of_autocast_as_in_a_loop() -> None:
    eager = Attention()
    model = planned(copy.deepcopy(eager), "1.0x", report=lambda _: None)
    for its in (eager, model):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = its(torch.randn(2, 16, 8))
        found.float().pow(2).sum().backward()
    assert same(gradients(model), gradients(eager))


def test_evaluation_and_a_changed_setting_are_kinds_of_their_own() -> None:
    eager, model = pair()
    for its in (eager, model):
        with torch.no_grad():
            assert not its(examples())["out"].requires_grad
    assert model.forward.plans == []
    for change in (lambda its: its.train(), lambda its: its.eval(), lambda its: setattr(its.train().drop, "p", 0.9)):
        for its in (eager, model):
            change(its)
            torch.manual_seed(1)
            its(examples())["out"].sum().backward()
    assert same(gradients(model), gradients(eager))
    assert len(model.forward.plans) == 3


@pytest.mark.thorough
def test_counter_that_the_forward_pass_advances_makes_no_new_kind() -> None:
    _, model = pair()
    for _ in range(3):
        model(examples())["out"].sum().backward()
    assert len(model.forward.plans) == 1


def test_parameters_are_read_at_each_call() -> None:
    eager, model = pair()
    other = {name: value + 0.5 if value.is_floating_point() else value for name, value in state_of(eager).items()}
    model(examples())
    for its in (eager, model):
        its.load_state_dict(copy.deepcopy(other), assign=True)
        torch.manual_seed(1)
        its(examples())["out"].sum().backward()
    assert same(gradients(model), gradients(eager))
    assert len(model.forward.plans) == 1


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(6))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            given = nn.functional.gelu(layer(given))
        return given.mean(0)  # little that the caller holds


def test_peak_keeps_to_the_budget() -> None:
    given, eager = torch.randn(256, 128), Deep()
    model = planned(copy.deepcopy(eager), "0.6x", report=lambda _: None)

    def step(its: nn.Module) -> None:
        its(given).sum().backward()

    peaks = []
    for its in (eager, model):
        step(its)
        its.zero_grad()  # before: memory of earlier steps that a measured one frees would count as room
        gc.collect()
        peaks.append(measure_peak(lambda its=its: step(its), given.device)[0])
    assert peaks[1] <= model.forward.plans[0].peak_bytes
    assert peaks[1] <= 0.7 * peaks[0]
    assert same(gradients(model), gradients(eager))


def test_call_without_a_backward_pass_leaves_nothing_behind() -> None:
    _, model = pair()
    found = model(examples())["out"]
    call = weakref.ref(found.grad_fn)
    del found
    assert call() is None


def test_second_backward_pass_and_changes_between_are_refused() -> None:
    _, model = pair()
    loss = model(examples())["out"].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="runs its backward pass once"):
        loss.backward()
    loss = model(examples())["out"].sum()
    with torch.no_grad():
        model.last.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place between"):
        loss.backward()


def test_call_without_a_plan_runs_eager_or_is_refused() -> None:
    eager, model = pair(on_new="eager")
    for its in (eager, model):
        torch.manual_seed(1)
        its(examples())["out"].sum().backward()
    assert same(gradients(model), gradients(eager))
    assert model.forward.plans == []
    _, model = pair(on_new="refuse")
    with pytest.raises(InputError, match=r"no plan for arguments of \[8, 6\]; on_new='plan' makes one"):
        model(examples())


def test_budget_that_nothing_fits_into_is_one_line_with_the_least() -> None:
    _, model = pair(1000)
    with pytest.raises(InputError, match=r"infeasible; every plan needs at least [\d,]+ bytes"):
        model(examples())


def test_wrong_arguments_are_one_line() -> None:
    with pytest.raises(InputError, match="on_new: must be one of plan, eager, refuse, got 'no'"):
        planned(Net(), "0.9x", on_new="no")  # type: ignore[arg-type]
    _, model = pair()
    with pytest.raises(InputError, match="follows plans already"):
        planned(model, "0.9x")
    assert "forward" not in vars(unplanned(model))
    with pytest.raises(InputError, match="follows no plans"):
        unplanned(model)


def test_hook_inside_of_the_model_is_refused_and_one_on_it_runs() -> None:
    _, model = pair()
    seen: list[torch.Size] = []
    model.register_forward_hook(lambda _, given, found: seen.append(found["out"].shape))
    model(examples())
    assert seen == [torch.Size([8, 6])]
    model.norm.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="module 'norm' has a forward hook"):
        model(examples())


def test_trainers_see_what_the_model_takes() -> None:
    _, model = pair()
    assert list(inspect.signature(model.forward).parameters) == ["given", "scale"]


def test_plans_under_a_trainers_forward_are_found_and_taken_back() -> None:
    eager, model = pair()
    forward = model.forward
    model.forward = functools.wraps(forward)(lambda *given, **named: forward(*given, **named))
    with pytest.raises(InputError, match="follows plans already"):
        planned(model, "0.9x")
    model.forward = types.MethodType(forward, model)  # as `accelerator.unwrap_model` leaves it
    for its in (eager, model):
        torch.manual_seed(1)
        its(examples())["out"].sum().backward()
    assert same(gradients(model), gradients(eager))
    assert len(forward.plans) == 1
    assert unplanned(model)(examples(5))["out"].requires_grad
    assert len(forward.plans) == 1


def test_forward_that_a_trainer_has_put_there_comes_back() -> None:
    model = Net()
    own = model.forward = functools.partial(model.forward, scale=2.0)
    assert unplanned(planned(model, "0.9x")).forward is own


@pytest.mark.thorough
def test_copy_plans_anew() -> None:
    _, model = pair()
    model(examples())
    copied = copy.deepcopy(model)
    copied(examples())["out"].sum().backward()
    assert gradients(copied)
    assert gradients(model) == {}
    assert len(copied.forward.plans) == 1


def test_planned_model_can_be_pickled() -> None:
    model = pickle.loads(pickle.dumps(planned(Net(), "0.95x")))
    assert model.forward.plans == []
    assert isinstance(unplanned(model), Net)


@pytest.mark.thorough
def test_code_is_written_once_however_many_calls_come(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def counting(source: str, *rest: Any) -> Any:
        written.append(source)
        return compile(source, *rest)

    monkeypatch.setattr("gapless.torch.run.code.compile", counting, raising=False)
    _, model = pair()
    counts = []
    for _ in range(4):
        model(examples())["out"].sum().backward()
        counts.append(len(written))
    assert counts[0] > 0
    assert counts[1:] == counts[:-1], "the first call that ends leaves the code of all later ones"


class Cache:
    """What a model has computed, in an object of its own."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        self.kept, self.count = kept, len(kept)


class Shared(nn.Module):
    """A layer under two names, and outputs in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = self.first

    def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, Cache]:
        hidden = self.first(given).tanh()
        return self.again(hidden), Cache([hidden])


def test_module_under_two_names_and_tensors_in_an_object_are_as_eagers() -> None:
    torch.manual_seed(0)
    eager = Shared()
    model = planned(copy.deepcopy(eager), "1.0x", report=lambda _: None)
    given = examples()
    for _ in range(2):
        made = [its(given) for its in (eager, model)]
        for out, cache in made:
            (out.square().sum() + cache.kept[0].sum()).backward()
        assert made[0][1].count == made[1][1].count
        assert torch.equal(made[0][1].kept[0], made[1][1].kept[0])
    assert same(gradients(eager), gradients(model))
