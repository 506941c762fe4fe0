"""States of hooks that can't be saved or gone on with are refused in one line; a plan's state is found and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from hook_training import reloaded
from torch import nn
from two_ranks import READY_ORDER, batch, fresh_model

from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets
from gapless.torch.ddp import HookState, distribute, hook_state, reduce_bucket
from gapless.torch.ddp.layer_modes import LayerState, reduce_layers


@pytest.fixture(autouse=True)
def one_rank(one_thread: None) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def hooked(mode: str = "topk:0.1", model: nn.Module | None = None, **options: Any) -> tuple[Any, HookState]:
    ddp = nn.parallel.DistributedDataParallel(model or fresh_model(), **options)
    state = HookState(mode)
    ddp.register_comm_hook(state, reduce_bucket)
    return ddp, state


def stepped(ddp: Any, steps: int) -> None:
    for number in range(steps):
        inputs, targets = batch(0, number)
        nn.functional.mse_loss(ddp(inputs), targets).backward()


def saved(steps: int = 3) -> dict[str, Any]:
    ddp, state = hooked()
    stepped(ddp, steps)
    found: dict[str, Any] = reloaded(state.state_dict())
    return found


def gone_on(data: dict[str, Any], *arguments: Any, **options: Any) -> None:
    ddp, state = hooked(*arguments, **options)
    state.load_state_dict(data)
    assert ddp is not None


class Wider(nn.Module):
    """The tests' model with another layer in a place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(13, 4, bias=False)


REFUSED: dict[str, Callable[[], Any]] = {
    r"state: mode of a bucket must be 'topk:0.1' as in what was saved, got 'topk:0.2'": (
        lambda: gone_on(saved(), "topk:0.2")
    ),
    r"state: parameter 'last.weight' must have 39 entries as in what was saved, got 52": (
        lambda: gone_on(saved(), model=Wider())
    ),
    r"state: parameter 'last.weight' must be in the model": lambda: gone_on(saved(), model=nn.Linear(3, 3)),
    r"state: rank must be 0, got 1; every rank loads": lambda: gone_on({**saved(), "rank": 1}),
    r"state: ranks must be 1, got 2; every rank loads": lambda: gone_on({**saved(), "ranks": 2}),
    r"state: format must be 'gapless.hook-state', got None": lambda: gone_on({"error": 1}),
    r"state: can be saved from the second step on": lambda: saved(1),
    r"state: must be registered first; ddp.register_comm_hook\(state, reduce_bucket\)": (
        lambda: HookState("topk").state_dict()
    ),
    r"state: DDP must make the buckets that the state was saved with; give it the same options, not static_graph": (
        lambda: gone_on(saved(), static_graph=True)
    ),
    r"find_unused_parameters: must be False with modes that feed errors back": (
        lambda: stepped(hooked(find_unused_parameters=True)[0], 1)
    ),
    r"scaler: must be given to the state": (
        lambda: distribute(fresh_model(), plan(), HookState("topk"), scaler=torch.amp.GradScaler("cpu"))
    ),
}


@pytest.mark.parametrize("rule", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of DDP, that no parameter was unused
def test_states_that_would_go_wrong_are_refused(rule: str) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        REFUSED[rule]()
    assert "\n" not in str(caught.value)


def plan() -> DdpBuckets:
    sizes = {name: 4 * each.numel() for name, each in fresh_model().named_parameters()}
    return DdpBuckets(
        "model", READY_ORDER, tuple(sizes[name] for name in READY_ORDER), ((0, 2), (3, 7)), ("powersgd:1", "topk:0.1")
    )


def test_the_state_of_a_plans_hook_is_found_and_gone_on_with() -> None:
    whole = distribute(fresh_model(), plan())
    stepped(whole, 5)
    first = distribute(fresh_model(), plan())
    stepped(first, 3)
    data = reloaded(hook_state(first).state_dict())
    assert data["modes"] == ["powersgd:1", "topk:0.1"]
    second = distribute(fresh_model(), plan())
    hook_state(second).load_state_dict(data)
    for other, one in zip(second.parameters(), first.parameters(), strict=True):
        other.grad = one.grad
    for number in (3, 4):
        inputs, targets = batch(0, number)
        nn.functional.mse_loss(second(inputs), targets).backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(whole.parameters(), second.parameters(), strict=True))


def test_ddp_without_a_hook_has_no_state() -> None:
    assert hook_state(nn.parallel.DistributedDataParallel(fresh_model())) is None


def test_modes_of_layers_are_those_of_the_saved_run() -> None:
    states = []
    for mode in ("topk:0.1", "powersgd:1"):
        ddp = nn.parallel.DistributedDataParallel(fresh_model())
        states.append(LayerState(ddp.module, dict.fromkeys(READY_ORDER, mode)))
        ddp.register_comm_hook(states[-1], reduce_layers)
        stepped(ddp, 2)
    states[1].load_state_dict(reloaded(states[0].state_dict()))
    assert states[1].state_dict()["modes"] == dict.fromkeys(READY_ORDER, "topk:0.1")
    assert states[1].sent_bytes == states[0].sent_bytes
