"""Eigenvalues of a Hessian that is known, overlaps, and a training that is looked at."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from calls import run

from gapless.torch.ddp.training import Recipe
from gapless.torch.regimes import observed_regimes, overlap, top_eigenvalue
from gapless.torch.run.workload import Workload

MODEL = "train:net,layers=2,width=4,batch=24,size=4,classes=3"


def bowl(matrix: torch.Tensor) -> Workload:
    """A loss whose Hessian in the one parameter is the matrix."""
    model = torch.nn.Linear(len(matrix), 1, bias=False)
    return Workload(model, [torch.eye(len(matrix))], lambda out, _: 0.5 * (out.T @ matrix @ out).sum(), [torch.eye(1)])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_top_eigenvalue_is_the_largest_in_magnitude_with_its_sign(sign: float) -> None:
    generator = torch.Generator().manual_seed(1)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator))
    values = sign * torch.tensor([9.0, -4.0, 3.0, 1.0, 0.5, 0.0])
    work = bowl(rotation @ torch.diag(values) @ rotation.T)
    found, (vector,), products = top_eigenvalue(work, list(work.model.parameters()), [torch.ones(1, 6)], 100)
    assert found == pytest.approx(sign * 9.0, rel=1e-2)
    assert abs(float(vector.flatten() @ rotation[:, 0])) == pytest.approx(1.0, abs=1e-2)
    assert 1 < products < 100


def test_a_flat_loss_has_the_eigenvalue_zero() -> None:
    work = bowl(torch.zeros(3, 3))
    value, _, products = top_eigenvalue(work, list(work.model.parameters()), [torch.ones(1, 3)], 10)
    assert (value, products) == (0.0, 1)


def test_overlap_is_the_share_that_both_have() -> None:
    one = torch.tensor([True, True, False, False])
    assert overlap(one, torch.tensor([True, False, True, False])) == 0.5
    assert overlap(one, one) == 1.0


def test_norms_are_of_the_mean_gradient_and_all_entries_overlap_with_themselves() -> None:
    recipe = Recipe(MODEL, 0, 24, (1e-6,), 0.0, 0.25, 1, 10.0)
    whole = observed_regimes(Recipe(MODEL, 0, 18, (1e-6,), 0.0, 0.25, 1, 10.0), 0.1, 2, 8)
    assert whole.mean_overlaps == [1.0]  # one step: its gradient is the mean
    steps = observed_regimes(Recipe(MODEL, 0, 3, (1e-6, 1e-6), 0.0, 0.25, 1, 10.0), 1.0, 2, 8)
    assert steps.overlaps == steps.mean_overlaps == [1.0, 1.0]
    assert np.shape(steps.norms) == (2, len(steps.layers))
    assert steps.products <= 4
    with pytest.raises(Exception, match="examples are trained on"):
        observed_regimes(recipe, 0.1, 2, 8)


def test_the_command_says_which_epochs_are_critical_by_either(capsys: pytest.CaptureFixture[str], tmp_path) -> None:  # type: ignore[no-untyped-def]
    words = ("validate", "regimes", "--model", MODEL, "--batch", "6", "--iterations", "3", "--eta", "0.05")
    code, out, err = run(capsys, *words, "--epochs", "4", "--decay", "3", "--json")
    assert code == 0, err
    data = json.loads(out)
    norm = np.array(data["norm"])
    changes = np.abs(norm[:-1] - norm[1:]) >= 0.05 * norm[:-1]
    assert data["critical_by_norm"] == [False, False, *changes[:2].tolist()]  # whatever the learning rate does
    assert data["compared"] == 2
    assert 0 <= data["agree"] <= 2
    code, out, err = run(capsys, *words, "--epochs", "2")
    assert (code, out) == (2, "")
    assert "looks 1 epochs apart are compared after 2 epochs, got 2" in err
