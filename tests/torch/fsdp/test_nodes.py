"""Groups that are sharded in nodes: FSDP2's meshes, and gradients beside one process. Needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gloo_ranks import run_ranks

from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Group, Fsdp2Wrapping
from gapless.torch.fsdp import apply
from gapless.torch.library import Tensor, torch

NAMES = ("0", "1", "2", "3")
WRAPPING = Fsdp2Wrapping(
    "four", NAMES, (72,) * 4,
    (
        Fsdp2Group(0, 0, False, "fp32", "fp32", (1,)),
        Fsdp2Group(1, 1, False, "fp32", "fp32", (2,), (0,), "secondary"),
        Fsdp2Group(2, 2, False, "fp32", "fp32", (3,), (1,), "hybrid"),
        Fsdp2Group(3, 3, True, "fp32", "fp32", (), (2,), "hybrid"),
    ),
    1, 2,
)  # fmt: skip
"""Two nodes of two ranks."""


def a_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in NAMES))


def batch(rank: int) -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))


class Noted:
    """Gathers as FSDP2 has them, and over how many ranks each is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        self.sizes.append(group.size())
        distributed = torch.distributed
        run = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
        return run(output_tensor, input_tensor, group=group, async_op=async_op)


def trained(rank: int, folder: Path) -> dict[str, Any]:
    """Whole gradients, who has a part of them, and over how many ranks each gather was in a step."""
    model, noted = apply(a_model(), WRAPPING), Noted()
    for layer in model:
        layer.set_custom_all_gather(noted)
    model(batch(rank)).square().mean().backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    return {
        "gathers": noted.sizes,
        "meshes": {name: tuple(each.device_mesh.shape) for name, each in gradients.items()},
        "gradients": {name: each.full_tensor() for name, each in gradients.items()},
    }


@pytest.mark.thorough
def test_groups_are_sharded_in_nodes_and_gradients_are_means_over_all_ranks(tmp_path: Path) -> None:
    found = run_ranks(trained, 4, tmp_path)
    whole = a_model()
    (sum(whole(batch(rank)).square().mean() for rank in range(4)) / 4).backward()
    for rank in found:
        assert rank["gathers"] == [4, 4, 2, 2, 2, 2, 4]  # forward passes, then backward passes of all but the last
        assert {name[0]: mesh for name, mesh in rank["meshes"].items()} == {
            "0": (4,), "1": (4,), "2": (2, 2), "3": (2, 2),
        }  # fmt: skip
        for name, parameter in whole.named_parameters():
            torch.testing.assert_close(rank["gradients"][name], parameter.grad)


@pytest.mark.usefixtures("one_rank")
def test_a_mesh_that_isnt_whole_nodes_is_refused() -> None:
    with pytest.raises(InputError, match="mesh: must be several nodes of the plan's 2 ranks, in one dimension, got 1"):
        apply(a_model(), WRAPPING)
