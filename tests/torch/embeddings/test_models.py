"""Dense parts of recommendation models, small. Without torch: skipped."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.encodings.bagpipe.question import MODELS
from gapless.errors import InputError
from gapless.profiles.traces.recommendation import dense_model_names
from gapless.torch.embeddings.models import Inputs, Shape, dense_part

SHAPE = Shape(numbers=4, tables=3, dimension=5, rows=20)
INPUTS = Inputs(
    torch.randn(2, 4, generator=torch.Generator().manual_seed(0)),
    torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)),
    torch.tensor([3, 8, 8, 1]),
    torch.tensor([0, 0, 0, 1]),
)


def parameters(name: str) -> int:
    return sum(each.numel() for each in dense_part(name, SHAPE).parameters())


def test_models_that_train_are_those_with_costs() -> None:
    assert [*MODELS] == dense_model_names()


def test_layers_are_those_of_the_table_at_width_sixteen() -> None:
    """13-...-48 becomes 4-16-5, 399-...-1 5 + 6 -16-1; W&D ends in one layer on 16 + 15; DeepFM has a weight a row."""
    stack = {"dlrm": 4 * 16 + 16 + 16 * 5 + 5 + 11 * 16 + 16 + 16 + 1, "wide-and-deep": 2 * 16 * 16 - 12 * 16 + 64}
    stack["deepfm"] = 20 + 1 + 15 * 16 + 16 + 16 + 1
    stack["deep-and-cross"] = 4 * 16 + 16 + 16 * 5 + 5 + 2 * 2 * 20 + 20 * 16 + 16 + 16 + 1
    assert {name: parameters(name) for name in MODELS} == stack


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_a_gradient(name: str) -> None:
    model = dense_part(name, SHAPE)
    model(INPUTS).sum().backward()
    assert all(each.grad is not None for each in model.parameters())


def test_deepfm_adds_weights_of_rows_and_products_of_pairs() -> None:
    model = dense_part("deepfm", SHAPE)
    with torch.no_grad():
        weights = model.linear.normal_(generator=torch.Generator().manual_seed(2))[:, 0]
        deep = model.deep(INPUTS.pooled.flatten(1))[:, 0]
    pairs = sum((INPUTS.pooled[:, i] * INPUTS.pooled[:, j]).sum(dim=1) for i, j in itertools.combinations(range(3), 2))
    first = torch.stack([weights[3] + 2 * weights[8], weights[1]])
    torch.testing.assert_close(model(INPUTS).detach(), first + pairs + deep)


def test_deep_and_cross_multiplies_its_input_by_a_number_an_example() -> None:
    model = dense_part("deep-and-cross", SHAPE)
    seen = []
    model.top.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(INPUTS)
    first = torch.cat([model.bottom(INPUTS.numbers), INPUTS.pooled.flatten(1)], dim=1)
    expected = first
    for layer in model.cross:
        expected = first * (expected @ layer.weight[0])[:, None] + expected
    torch.testing.assert_close(seen[0], expected)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'deepfm'"):
        dense_part("deepfn", SHAPE)
