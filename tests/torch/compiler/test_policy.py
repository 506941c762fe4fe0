"""Policies of selective checkpointing: eager's bits, and the peak that their replay says.

Without torch these tests are skipped.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gapless.checker import check
from gapless.errors import InputError
from gapless.torch import policy
from gapless.torch.compiler.policy import Policy
from gapless.torch.devices import measure_peak

CPU, WIDTH = torch.device("cpu"), 64


class Block(nn.Module):
    """A residual block with dropout and an activation in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.gelu, self.relu, self.drop = nn.GELU(), nn.ReLU(inplace=True), nn.Dropout(0.1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given + self.relu(self.drop(self.down(self.gelu(self.up(self.norm(given))))))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(4)), nn.Linear(WIDTH, WIDTH))


GIVEN = torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(1))


def mean_square(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def gradients(call: nn.Module) -> list[torch.Tensor]:
    call.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    mean_square(call(GIVEN)).backward()
    return [parameter.grad.clone() for parameter in call.parameters()]


def made(budget: str | int) -> tuple[nn.Module, Policy]:
    net = model()
    return net, policy(net, (GIVEN,), mean_square, budget=budget, beside=False, report=lambda _: None)


@pytest.mark.parametrize("budget", ["0.8x", "0.6x"])
def test_gradients_have_eagers_bits_and_the_measured_peak_is_the_replayed_one(budget: str) -> None:
    expected = gradients(model())
    net, found = made(budget)
    assert check(found.replay.schedule).valid
    assert found.replay.again_s > 0
    found.apply(net)
    assert all(torch.equal(*pair) for pair in zip(gradients(net), expected, strict=True))
    net.zero_grad(set_to_none=True)
    peak_bytes, _ = measure_peak(lambda: mean_square(net(GIVEN)).backward(), CPU)
    assert peak_bytes == pytest.approx(found.replay.peak_bytes, rel=0.05)


def test_a_block_is_checkpointed_by_hand_under_its_context() -> None:
    expected = gradients(model())
    net, found = made("0.6x")
    for name in found.saved:
        block, context = net.get_submodule(name), found.context_fn(name)
        forward = block.forward
        block.forward = lambda given, forward=forward, context=context: checkpoint(
            forward, given, use_reentrant=False, context_fn=context
        )
    assert all(torch.equal(*pair) for pair in zip(gradients(net), expected, strict=True))


def test_of_what_is_saved_nothing_is_random_or_written_over() -> None:
    _, found = made("0.8x")
    names = {name for saved in found.saved.values() for name, _ in saved}
    assert names
    assert not any("bernoulli" in name or "_." in name for name in names)


def test_more_budget_never_computes_more_again() -> None:
    shares = [replay.again_s / replay.forward_s for replay in (made(budget)[1].replay for budget in ("0.6x", "0.95x"))]
    assert shares[0] > shares[1]


def test_what_fits_nowhere_says_the_least_and_a_model_without_blocks_what_to_do() -> None:
    with pytest.raises(InputError, match="no policy: when all blocks are computed again, a step takes"):
        made(1)
    with pytest.raises(InputError, match="name modules to checkpoint by blocks"):
        policy(nn.Linear(2, 2), (torch.randn(2, 2),), mean_square, budget="0.5x")


@pytest.mark.thorough
def test_a_full_plan_is_said_beside() -> None:
    lines: list[str] = []
    policy(model(), (GIVEN,), mean_square, budget="0.7x", report=lines.append)
    assert [line.split(":")[0] for line in lines] == ["a policy", "a full plan"]
