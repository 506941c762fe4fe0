"""Fusion profiles measured with PyTorch, and plans in DistributedDataParallel: two processes against one.

Without torch these tests are skipped.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from torch import nn
from two_ranks import (
    ITERATIONS,
    RANKS,
    READY_ORDER,
    VARIANTS,
    OutOfOrder,
    batch,
    fresh_model,
    gradients_of,
    step,
    train_all,
)

import gapless
from gapless.cli.main import main
from gapless.encodings.cupcake import Problem
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import assigned_groups, read_ddp_buckets
from gapless.io.plan import SavedPlan, claim_data, write_plan
from gapless.profiles.gradients.cost_functions import FREE, AffineCost
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import read_fusion_profile, write_fusion_profile
from gapless.torch.ddp.buckets import distribute
from gapless.torch.ddp.measuring import measure_gradients

Found = list[dict[str, Any]]


def profile_of(model: nn.Module, *inputs: torch.Tensor, steps: int = 2) -> FusionProfile:
    """The model's profile, with costs of no interest."""
    found = measure_gradients(model, lambda each: each(*inputs).sum(), steps, warm_up=1)
    return FusionProfile(
        "model", found.forward_s, found.names, np.array(found.size_bytes), np.array(found.gaps_s), (plain_mode(FREE),),
        shapes=found.shapes,
    )  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`buckets.json` of an optimal plan for the model's own gradients, with times that don't vary."""
    place = tmp_path_factory.mktemp("ddp")
    profile = replace(
        profile_of(fresh_model(), batch(0, 0)[0]),
        backward_s=np.array([9e-4, 3e-4, 3e-4, 9e-4, 3e-4, 12e-4, 3e-4, 6e-4]),
        modes=(Mode("topk", AffineCost(6e-4, 6e-7), AffineCost(3e-4, 0.0)),),
    )
    problem = Problem(profile)
    result = gapless.solve(problem)
    assert result.schedule is not None
    plan = SavedPlan(problem.system, problem.description, claim_data(result.solution), result.details, result.schedule)
    write_plan(place / "plan.json", plan)
    files = [str(place / name) for name in ("plan.json", "buckets.json")]
    assert main(["export", files[0], "--format", "ddp-buckets", "-o", files[1]]) == 0
    return place


@pytest.fixture(scope="module")
def planned(folder: Path) -> tuple[tuple[str, ...], ...]:
    """The plan's buckets."""
    return read_ddp_buckets(folder / "buckets.json").buckets


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    """What each of two gloo processes saw."""
    return run_ranks(train_all, RANKS, folder)


# -- two processes -----------------------------------------------------------------------------------------------------


def test_plan_is_one_that_caps_in_another_order_would_not_give(folder: Path) -> None:
    buckets = read_ddp_buckets(folder / "buckets.json")
    assert [len(bucket) for bucket in buckets.buckets] == [5, 1, 2]
    assert buckets.parameter_names == READY_ORDER
    for size_bytes, caps in (
        (buckets.parameter_bytes, buckets.bucket_cap_mb_list[::-1]),
        (buckets.parameter_bytes[::-1], buckets.bucket_cap_mb_list),
    ):
        assert assigned_groups(size_bytes, caps) != list(buckets.groups)


@pytest.mark.parametrize("variant", ["plain", "whole", "sparse", "sparse-views"])
def test_buckets_are_the_plans_from_iteration_1_on(
    found: Found, planned: tuple[tuple[str, ...], ...], variant: str
) -> None:
    for rank in range(RANKS):
        used = [iteration["buckets"] for iteration in found[rank][variant]]
        assert used[0] != planned
        assert used[1:] == [planned] * (ITERATIONS - 1)


def test_buckets_of_a_static_graph_are_the_plans_from_iteration_2_on(
    found: Found, planned: tuple[tuple[str, ...], ...]
) -> None:
    used = [iteration["buckets"] for iteration in found[0]["static"]]
    assert [buckets == planned for buckets in used] == [False, False, True, True]


def mean_of_ranks(gradients: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: sum(each[name] for each in gradients) / RANKS for name in gradients[0]}


def gradients_alone(model: OutOfOrder, rank: int, iteration: int) -> dict[str, torch.Tensor]:
    """A rank's gradients, without any distribution."""
    inputs, targets = batch(rank, iteration)
    model.zero_grad(set_to_none=True)
    nn.functional.mse_loss(model(inputs), targets).backward()
    return gradients_of(model)


@pytest.mark.parametrize("variant", ["plain", "whole", "static"])
def test_averaged_gradients_equal_the_single_process_reference(found: Found, variant: str) -> None:
    model = fresh_model()
    for iteration in range(ITERATIONS):
        expected = mean_of_ranks([gradients_alone(model, rank, iteration) for rank in range(RANKS)])
        for rank in range(RANKS):
            got = found[rank][variant][iteration]["gradients"]
            assert all(torch.equal(got[name], expected[name]) for name in READY_ORDER), (iteration, rank)
        step(model, expected)


class SimulatedTopK:
    """Top-k with error feedback of one rank, by sorting."""

    def __init__(self, kept: float) -> None:
        self.kept = kept
        self.errors: dict[str, torch.Tensor] = {}

    def sent(self, gradients: dict[str, torch.Tensor], buckets: tuple[tuple[str, ...], ...]) -> dict[str, torch.Tensor]:
        """What arrives of a rank's gradients."""
        arrives = {}
        for bucket in buckets:
            flat = torch.cat([(gradients[name] + self.errors.get(name, 0.0)).flatten() for name in bucket])
            ranking = flat.abs().argsort(descending=True, stable=True)
            dropped = ranking[max(1, round(self.kept * len(flat))) :]
            kept = flat.clone()
            kept[dropped] = 0.0
            lengths = [gradients[name].numel() for name in bucket]
            for name, part, left in zip(bucket, kept.split(lengths), (flat - kept).split(lengths), strict=True):
                arrives[name], self.errors[name] = part.view_as(gradients[name]), left.view_as(gradients[name])
        return arrives


@pytest.mark.parametrize("variant", ["sparse", "sparse-views"])
def test_sparse_gradients_equal_a_single_process_simulation_with_error_feedback(found: Found, variant: str) -> None:
    model = fresh_model()
    simulated = [SimulatedTopK(VARIANTS[variant].kept or 0.0) for _ in range(RANKS)]
    for iteration in range(ITERATIONS):
        buckets = found[0][variant][iteration]["buckets"]
        alone = [gradients_alone(model, rank, iteration) for rank in range(RANKS)]
        expected = mean_of_ranks([simulated[rank].sent(alone[rank], buckets) for rank in range(RANKS)])
        for rank in range(RANKS):
            got = found[rank][variant][iteration]["gradients"]
            assert all(torch.equal(got[name], expected[name]) for name in READY_ORDER), (iteration, rank)
        step(model, expected)


def test_buckets_in_modes_of_their_own_are_plain_where_the_mode_is(
    found: Found, planned: tuple[tuple[str, ...], ...]
) -> None:
    model = fresh_model()
    for iteration in range(ITERATIONS):
        expected = mean_of_ranks([gradients_alone(model, rank, iteration) for rank in range(RANKS)])
        for rank in range(RANKS):
            assert found[rank]["mixed"][iteration]["buckets"] == (
                planned if iteration else found[0]["plain"][0]["buckets"]
            )
            got = found[rank]["mixed"][iteration]["gradients"]
            same = {name for name in READY_ORDER if torch.equal(got[name], expected[name])}
            vectors = {name for name in planned[0] if expected[name].dim() < 2}
            assert same >= ({*planned[1], *vectors} if iteration else set(READY_ORDER))
            assert not iteration or not same & {"third.weight", *planned[2]}
        step(model, found[0]["mixed"][iteration]["gradients"])


def test_every_rank_gets_what_rank_0_measured(found: Found) -> None:
    assert found[0]["gradients"] == found[1]["gradients"]
    assert found[0]["gradients"].names == READY_ORDER


def test_hooks_are_measured_without_what_they_do_first(found: Found) -> None:
    total = sum(found[0]["gradients"].size_bytes)
    for mode, sent in found[0]["sent"].items():
        assert [(each.mode, each.size_bytes) for each in sent] == 2 * [(mode, total)]
        assert all((each.between_s > 0) == mode.startswith("powersgd") for each in sent)


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_profile_lists_gradients_as_they_become_ready_not_as_registered(tmp_path: Path) -> None:
    profile = profile_of(fresh_model(), batch(0, 0)[0], steps=3)
    assert profile.tensor_names == READY_ORDER
    registered = [name for name, _ in fresh_model().named_parameters()]
    assert list(READY_ORDER) != registered[::-1]
    sizes = {name: 4 * parameter.numel() for name, parameter in fresh_model().named_parameters()}
    assert profile.size_bytes.tolist() == [sizes[name] for name in READY_ORDER]
    assert profile.forward_s > 0
    assert (profile.backward_s >= 0).all()
    assert profile.backward_s[0] > 0
    assert profile.shapes == tuple(tuple(dict(fresh_model().named_parameters())[name].shape) for name in READY_ORDER)
    write_fusion_profile(tmp_path / "profile.json", profile)
    assert read_fusion_profile(tmp_path / "profile.json").tensor_names == READY_ORDER


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    model[0].weight.grad = torch.ones(8, 4)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    random_state = torch.get_rng_state()
    profile_of(model, torch.randn(5, 4, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones(8, 4))
    assert model[3].weight.grad is None
    assert torch.equal(torch.get_rng_state(), random_state)


def test_frozen_parameters_are_left_out() -> None:
    model = fresh_model()
    model.scale.requires_grad_(False)
    assert "scale" not in profile_of(model, batch(0, 0)[0]).tensor_names


class Fickle(nn.Module):
    """Uses its layers in turns, so that their gradients change places."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.a(self.b(inputs)) if self.calls % 2 else self.b(self.a(inputs))


class Unused(nn.Module):
    """Has a layer that it never uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.used(inputs)


def mixed_types() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).double())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            mixed_types,
            r"must have one type and device.*'0.weight' in torch.float32 on cpu, '1.weight' in torch.float64",
        ),
        (lambda: nn.Sequential(nn.Embedding(4, 3, sparse=True)), "module '0': must not have sparse gradients"),
        (Fickle, "gradients must become ready in one order.*in step 1 where"),
        (Unused, "parameter 'idle.weight': must get a gradient in every step, got none; use it"),
        (nn.Identity, "model: must have a parameter that requires a gradient"),
    ],
)
def test_models_whose_buckets_ddp_could_not_keep_are_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(InputError, match=message):
        profile_of(make(), torch.ones(2, 3))


def test_numbers_of_steps_are_checked() -> None:
    with pytest.raises(InputError, match="steps: must be at least 1, got 0"):
        profile_of(fresh_model(), batch(0, 0)[0], steps=0)


# -- plans in DDP, in one process --------------------------------------------------------------------------------------


def test_ddps_own_assignment_is_the_one_that_exports_are_checked_with() -> None:
    chance = random.Random(7)
    for _ in range(200):
        count = chance.randint(1, 12)
        lengths = [chance.choice([0, 1, 2, 3, 1000]) for _ in range(count)]
        caps = [chance.randint(0, 20) / 2**20 for _ in range(chance.randint(1, 5))]
        order = chance.sample(range(count), count)
        tensors = [torch.empty(lengths[place]) for place in order]
        limits = [int(cap * 2**20) for cap in caps]
        assign = torch.distributed._compute_bucket_assignment_by_size  # noqa: SLF001
        made, _ = assign(tensors, limits, [False] * count, order)
        simulated = assigned_groups([4 * lengths[place] for place in order], caps)
        assert made == [order[first : last + 1] for first, last in simulated]


def test_surroundings_in_which_ddp_makes_other_buckets_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "buckets.json"
    with pytest.raises(InputError, match="find_unused_parameters: must be False"):
        distribute(fresh_model(), file, find_unused_parameters=True)
    with pytest.raises(InputError, match="bucket_cap_mb: must not be given, since the plan says it, got 25"):
        distribute(fresh_model(), file, bucket_cap_mb=25)
    monkeypatch.setenv("DDP_SET_LAST_BUCKET_CAP", "1")
    with pytest.raises(InputError, match="DDP_SET_LAST_BUCKET_CAP: must not be 1"):
        distribute(fresh_model(), file)


def test_models_other_than_the_plans_are_refused(folder: Path) -> None:
    buckets = read_ddp_buckets(folder / "buckets.json")
    smaller = fresh_model()
    smaller.scale.requires_grad_(False)
    with pytest.raises(InputError, match="parameter 'scale': must be in the model and require a gradient"):
        distribute(smaller, buckets)
    with pytest.raises(InputError, match=r"parameter 'used\.weight': must be in the plan of 'model'; measure"):
        distribute(Unused(), buckets)
    with pytest.raises(InputError, match="parameter 'scale': must have 52 bytes as in the plan, got 104"):
        distribute(fresh_model().double(), buckets)
    with pytest.raises(InputError, match="must have one type and device"):
        distribute(mixed_types(), buckets)


def test_model_in_ddp_is_refused(folder: Path) -> None:
    ddp = object.__new__(torch.nn.parallel.DistributedDataParallel)  # a real one needs a process group
    with pytest.raises(InputError, match=r"must be bare, got one in DistributedDataParallel; pass its \.module"):
        profile_of(ddp, batch(0, 0)[0])
    with pytest.raises(InputError, match="must be bare"):
        distribute(ddp, folder / "buckets.json")


class OldDistributedDataParallel:
    """As before torch 2.11."""

    def __init__(self, module: nn.Module, bucket_cap_mb: float | None = None) -> None:
        raise AssertionError


def test_torch_without_a_list_of_caps_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", OldDistributedDataParallel)
    with pytest.raises(InputError, match=r"torch: must be 2\.11 or newer for bucket_cap_mb_list, got"):
        distribute(fresh_model(), folder / "buckets.json")
