"""What a planned step would train otherwise than eager is refused, in one line that says what to do.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn.utils import prune
from torch_steps import keep_all

from gapless.errors import InputError
from gapless.torch.capture.graph import capture
from gapless.torch.run import Step, run

Given = torch.randn(4, 6, generator=torch.Generator().manual_seed(5))


class Small(nn.Module):
    """Two layers with a loss, and a normalisation that trains otherwise than it evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(given)).relu()).pow(2).mean()


def refusal(model: nn.Module) -> str:
    with pytest.raises(InputError) as caught:
        capture(model, (Given,))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- wrapped models ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("one_rank")
def test_distributed_data_parallel_is_refused() -> None:
    wrapped = nn.parallel.DistributedDataParallel(Small())
    assert "is a DistributedDataParallel, whose all-reduce" in refusal(wrapped)
    assert "module 'inner'" in refusal(Holding(wrapped))


class Holding(nn.Module):
    """A module that holds another."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(given)
        return found


@pytest.mark.filterwarnings("ignore:FSDP is switching")
@pytest.mark.usefixtures("one_rank")
def test_sharded_models_are_refused() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    sharded = FullyShardedDataParallel(Small(), device_id=torch.device("cpu"))
    assert "capture the model before it is sharded" in refusal(sharded)
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    assert "capture the model before fully_shard" in refusal(fully_shard(Small(), mesh=mesh))


def test_data_parallel_is_refused() -> None:
    assert "pass model.module" in refusal(nn.DataParallel(Small()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler, for PyTorch
def test_compiled_models_are_refused() -> None:
    assert "pass the model that torch.compile was given, model._orig_mod" in refusal(torch.compile(Small()))
    inside = Small()
    inside.first.compile()
    assert "module 'first' was compiled in place" in refusal(inside)


def test_parameters_without_shape_are_refused() -> None:
    assert "has no shape yet; run the model once" in refusal(nn.Sequential(nn.LazyLinear(3)))


# -- hooks -------------------------------------------------------------------------------------------------------------


def nothing(*_: Any) -> None:
    return None


HOOKS: dict[str, Callable[[Small], Any]] = {
    "module 'first' has a forward hook": lambda model: model.first.register_forward_hook(nothing),
    "module 'first' has a forward pre-hook": lambda model: model.first.register_forward_pre_hook(nothing),
    "module 'first' has a backward hook": lambda model: model.first.register_full_backward_hook(nothing),
    "module 'first' has a backward pre-hook": lambda model: model.first.register_full_backward_pre_hook(nothing),
    "parameter 'first.weight' has a hook on its gradient": lambda model: model.first.weight.register_hook(nothing),
    "parameter 'last.bias' has a hook on its gradient": (
        lambda model: model.last.bias.register_post_accumulate_grad_hook(nothing)
    ),
}


@pytest.mark.parametrize("rule", HOOKS)
def test_hooks_are_refused_at_capture_and_at_every_step(rule: str) -> None:
    model = Small()
    step = stepped(model)
    step(Given)
    handle = HOOKS[rule](model)
    assert refusal(model).startswith(rule)
    with pytest.raises(InputError, match=rule):
        step(Given)
    handle.remove()
    step(Given)


def test_hooks_of_all_modules_are_refused() -> None:
    handle = nn.modules.module.register_module_forward_hook(nothing)
    try:
        assert "all modules have a forward hook" in refusal(Small())
    finally:
        handle.remove()


def pruned(model: Small) -> None:
    prune.l1_unstructured(model.first, "weight", 0.3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "change",
    [lambda model: nn.utils.weight_norm(model.first), lambda model: nn.utils.spectral_norm(model.first), pruned],
    ids=["weight_norm", "spectral_norm", "pruning"],
)
def test_hooks_that_compute_a_weight_are_traced(change: Callable[[Small], Any]) -> None:
    model = Small()
    change(model)
    step = stepped(model)
    step(Given)
    assert step.difference is not None
    assert step.difference.is_equal


# -- what has changed since the capture --------------------------------------------------------------------------------


def stepped(model: nn.Module) -> Step:
    return run(keep_all(capture(model, (Given,))), model, report=nothing)


def untied(model: nn.Module) -> None:
    model.last.weight = model.first.weight  # type: ignore[assignment, union-attr]


CHANGES: dict[str, Callable[[Small], Any]] = {
    "module 'norm' was captured in training mode": lambda model: model.norm.eval(),
    "parameter 'first.weight' was trained at capture": lambda model: model.first.weight.requires_grad_(False),
    "first.weight, last.weight must share a tensor, or not": untied,
    "parameter 'first.bias' was replaced": lambda model: setattr(model.first, "bias", nn.Parameter(torch.zeros(6))),
}


@pytest.mark.parametrize("rule", CHANGES)
def test_models_that_have_changed_are_refused(rule: str) -> None:
    model = Small()
    step = stepped(model)
    CHANGES[rule](model)
    with pytest.raises(InputError, match=rule):
        step(Given)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_frozen_parameter_that_is_to_train_is_refused() -> None:
    model = Small()
    model.first.weight.requires_grad_(False)
    step = stepped(model)
    model.first.weight.requires_grad_(True)
    with pytest.raises(InputError, match=r"'first\.weight' was frozen at capture"):
        step(Given)


def test_copy_in_another_state_is_refused() -> None:
    model = Small()
    other = copy.deepcopy(model)
    untied(other)
    with pytest.raises(InputError, match="must share a tensor, or not"):
        run(keep_all(capture(model, (Given,))), other)(Given)


# -- plain attributes --------------------------------------------------------------------------------------------------


def doubled(given: torch.Tensor) -> torch.Tensor:
    return 2 * given


class Tempered(nn.Module):
    """A layer with settings of many kinds, and counters that the forward pass advances."""

    temp: float
    offset: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act, self.drop, self.norm = nn.Linear(6, 6), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(6)
        self.temp, self.kind, self.rates, self.none = 1.0, "sum", [0.5, 0.25], None
        self.scaled = doubled
        self.register_buffer("offset", torch.zeros(()))
        self.calls, self.seen, self.eager_calls = 0, [0], 0

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen[0] += 1
        if not torch.compiler.is_compiling():
            self.eager_calls += 1
        found = self.norm(self.act(self.layer(self.drop(given)))) / self.temp + self.offset
        found = self.scaled(found) * self.rates[1] ** 2
        return found.sum() if self.kind == "sum" else found.mean()


ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    r"the model had temp = 1.0 at capture, has 3.0 now; set it back, capture again, or make it a buffer": (
        lambda model: setattr(model, "temp", 3.0)
    ),
    r"the model had temp = 1.0 at capture, has none now": lambda model: setattr(model, "temp", torch.ones(6)),
    r"the model had kind = 'sum' at capture, has 'mean'": lambda model: setattr(model, "kind", "mean"),
    r"the model had none = None at capture, has True": lambda model: setattr(model, "none", True),
    r"the model had rates = \[0.5, 0.25\] at capture, has \[0.5, 1.0\]": (
        lambda model: model.rates.__setitem__(1, 1.0)
    ),
    r"the model had scaled = doubled at capture, has relu": lambda model: setattr(model, "scaled", torch.relu),
    r"the model had kind = 'sum' at capture, has none now": lambda model: delattr(model, "kind"),
    r"the model had no plain more of its own at capture, has 1 now": lambda model: setattr(model, "more", 1),
    r"module 'drop' had p = 0.5 at capture, has 0.1": lambda model: setattr(model.drop, "p", 0.1),
    r"module 'norm' had momentum = 0.1 at capture, has 0.01": lambda model: setattr(model.norm, "momentum", 0.01),
    r"module 'norm' had eps = 1e-05 at capture, has 0.1": lambda model: setattr(model.norm, "eps", 0.1),
    r"module 'act' was a ReLU at capture, is a Tanh": lambda model: setattr(model, "act", nn.Tanh()),
    r"module 'other' was not there at capture": lambda model: model.add_module("other", nn.Identity()),
}


@pytest.mark.parametrize("rule", ATTRIBUTES)
def test_attributes_that_were_traced_must_stay(rule: str) -> None:
    model = Tempered()
    step = stepped(model)
    step(Given)
    step(Given)
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    ATTRIBUTES[rule](model)
    for _ in range(2):
        with pytest.raises(InputError, match=rule) as caught:
            step(Given)
        assert "\n" not in str(caught.value)
    assert all(torch.equal(one.grad, other) for one, other in zip(model.parameters(), gradients, strict=True))


def test_a_model_that_is_compiled_after_its_capture_trains_on() -> None:
    model = Tempered()
    step = stepped(model)
    torch.compile(model, backend="eager")
    assert "_is_torch_compile" in vars(model)
    vars(model)["_compile_kwargs"] = {"backend": "eager"}  # Lightning's mark
    step(Given)


def test_what_was_set_back_trains_on() -> None:
    model = Tempered()
    step = stepped(model)
    step(Given)
    model.temp = 3.0
    with pytest.raises(InputError, match="had temp"):
        step(Given)
    model.temp = 1.0
    step(Given)


def test_counters_that_the_forward_pass_advances_may_go_on() -> None:
    model = Tempered()
    step = stepped(model)
    for _ in range(3):
        step(Given)
    model(Given)
    step(Given)
    assert model.calls > 1


def test_settings_of_a_loss_that_is_a_module_must_stay() -> None:
    model, loss, labels = nn.Linear(6, 3), nn.CrossEntropyLoss(), torch.zeros(4, dtype=torch.int64)
    step = run(keep_all(capture(model, (Given,), loss, targets=(labels,))), model, report=nothing)
    step(Given, labels)
    loss.label_smoothing = 0.3
    with pytest.raises(InputError, match=r"the loss had label_smoothing = 0\.0 at capture, has 0\.3"):
        step(Given, labels)


def descended(model: nn.Module, step: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """The parameters after a training whose schedule fills a buffer before each step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(3)
    for number in range(4):
        model.offset.fill_(0.5 * number)  # type: ignore[operator, union-attr]
        optimizer.zero_grad()
        step(Given)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_schedule_that_fills_a_buffer_trains_as_eager_does() -> None:
    model = Tempered()
    other = copy.deepcopy(model)
    planned = run(keep_all(capture(model, (Given,))), model, tolerance=None)
    eager = descended(other, lambda given: other(given).backward())
    assert torch.equal(descended(model, planned), eager)


def test_inputs_that_require_gradients_are_refused() -> None:
    model = Small()
    with pytest.raises(InputError, match=r"must not require gradients.*detach"):
        capture(model, (Given.clone().requires_grad_(),))
    with pytest.raises(InputError, match="tensor 0 requires a gradient"):
        stepped(model)(Given.clone().requires_grad_())


def test_inputs_in_other_strides_are_refused() -> None:
    model = Small()
    with pytest.raises(InputError, match=r"strides \[6, 1\], as it was captured, got .* strides \[1, 4\]"):
        stepped(model)(Given.t().contiguous().t())


def test_tensor_that_the_loss_holds_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"register it as a buffer, or pass it among inputs or targets"):
        capture(nn.Linear(6, 6), (Given,), lambda found: (found - Given).pow(2).mean())
