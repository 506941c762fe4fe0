"""Layers and compression errors of a model, measured. Without torch these tests are skipped."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

import gapless
from gapless.errors import InputError
from gapless.profiles.pipelines.compression import CompressionTable, read_compression_table, write_compression_table
from gapless.profiles.pipelines.profile import read_pipeline_profile, write_pipeline_profile
from gapless.torch.pipeline.layers import LayeredModel, load_layers, one_process
from gapless.torch.pipeline.measuring import measure_errors, measure_layers

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = "train:gpt,layers=3,hidden=32,sequence=16,vocabulary=40"


@pytest.fixture(scope="module")
def model() -> LayeredModel:
    return load_layers(SMALL, micro_batches=4)


@pytest.fixture(scope="module")
def table(model: LayeredModel) -> CompressionTable:
    return measure_errors(model, 4, ("rank 1", "rank 2", "rank 8", "float16", "bfloat16"), repeats=1)


def test_a_profile_has_the_models_layers_and_sizes(model: LayeredModel, tmp_path: Path) -> None:
    profile = measure_layers(model, 4, repeats=3)
    assert profile.layer_names == ("embedding", "layer1", "layer2", "layer3", "head")
    block = 4 * (12 * 32**2 + 13 * 32)
    assert profile.parameter_bytes.tolist() == [4 * 32 * (40 + 16), block, block, block, 4 * 32 * (40 + 2)]
    assert (profile.state_bytes == 4 * profile.parameter_bytes).all(), "weight, gradient, two of Adam"
    assert profile.boundary_bytes.tolist() == [4 * 16 * 32] * 4 + [0]
    assert profile.boundary_shape == (16, 32)
    assert profile.backward_s[0] == 0, "tokens have no gradient"
    assert (profile.forward_s > 0).all()
    assert (profile.backward_s[1:] > 0).all()
    assert (profile.weight_s > 0).all()
    assert (profile.stash_bytes[1:4] > profile.boundary_bytes[1:4]).all()
    assert len(set(profile.stash_bytes[1:4].tolist())) == 1, "equal layers keep equally much"
    assert profile.deferred_bytes[0] == profile.stash_bytes[0], "without a gradient of its input all is for its weights"
    assert (profile.deferred_bytes[1:4] > profile.boundary_bytes[1:4]).all()
    write_pipeline_profile(tmp_path / "p.json", profile)
    plan = gapless.pipeline.solve(profile=str(tmp_path / "p.json"), ranks=2, micro_batches=4, bandwidth=1e9)
    assert plan.valid
    again = read_pipeline_profile(tmp_path / "p.json")
    assert again.source == profile.source
    assert again.deferred_bytes.tolist() == profile.deferred_bytes.tolist()


def test_a_layers_stash_is_what_autograd_saves() -> None:
    layer = torch.nn.Linear(8, 4)
    given = LayeredModel("m", (("a", layer), ("b", torch.nn.Linear(4, 2))), torch.randn(6, 8),
                         torch.nn.functional.mse_loss, torch.randn(6, 2))  # fmt: skip
    profile = measure_layers(given, repeats=1)
    assert profile.stash_bytes[0] == 4 * 6 * 8, "its input; the weight is a parameter"
    assert profile.deferred_bytes[0] == 4 * 6 * 8 + 4 * 6 * 4, "the weight gradient needs that of the output, too"


def test_errors_fall_with_the_rank_and_casts_err_least(table: CompressionTable) -> None:
    hops = {mode.name: mode.hop_error for mode in table.modes}
    sums = {mode.name: mode.reduce_error for mode in table.modes}
    for column in (hops, sums):
        assert (column["rank 1"] > column["rank 2"]).all()
        assert (column["rank 2"] > column["rank 8"]).all()
        assert (column["rank 8"] > column["bfloat16"]).all()
        assert (column["bfloat16"] > column["float16"]).all()
        assert (column["float16"] > 0).all()


def test_a_hops_error_is_that_of_the_gradients_below_it(model: LayeredModel, table: CompressionTable) -> None:
    expected = one_process(model, 4)[0]
    norm = {layer: sum(float(gradient.double().square().sum()) for name, gradient in expected.items()
                       if name.startswith(layer)) for layer, _ in model.layers}  # fmt: skip
    most = norm["embedding"] / sum(norm.values())
    for mode in table.modes:
        assert 0 < np.interp(1 / 5, table.depth, mode.hop_error) < 2 * most


def test_sums_errors_are_densities(model: LayeredModel, table: CompressionTable) -> None:
    """The mean over a stage's depths times its share of the model: over all layers, the error of the whole."""
    expected = one_process(model, 4)[0]
    norm = sum(float(gradient.double().square().sum()) for gradient in expected.values())
    apart = sum(float((gradient.half().double() - gradient.double()).square().sum()) for gradient in expected.values())
    middles = (np.arange(5) + 0.5) / 5
    number = [mode.name for mode in table.modes].index("float16")
    assert table.reduce_error(number, middles).mean() == pytest.approx(apart / norm)


def test_a_table_goes_through_its_file(table: CompressionTable, tmp_path: Path) -> None:
    write_compression_table(tmp_path / "e.json", table)
    again = read_compression_table(tmp_path / "e.json")
    assert [mode.name for mode in again.modes] == [mode.name for mode in table.modes]
    assert [mode.rank for mode in again.modes] == [1, 2, 8, 0, 0]
    assert [mode.ratio for mode in again.modes][3:] == [0.5, 0.5]
    assert (again.modes[0].hop_error == table.modes[0].hop_error).all()


def test_measuring_leaves_no_hook_behind(model: LayeredModel, table: CompressionTable) -> None:
    assert all(not layer._forward_hooks for _, layer in model.layers)  # noqa: SLF001


def test_a_mode_that_saves_nothing_is_refused(model: LayeredModel) -> None:
    rule = "modes: 'rank 11' sends no less than the plain gradient of 1 x 16 x 32; leave it out"
    with pytest.raises(InputError, match=rule):
        measure_errors(model, 4, ("rank 11",), repeats=1)


FACTORIES = """
import torch
from torch import nn

def modules():
    return nn.Linear(4, 4), torch.randn(2, 4), nn.functional.mse_loss, torch.randn(2, 4)

def lossless():
    return nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 4)

def shared():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Sequential(layer), nn.Linear(4, 4))
    return model, torch.randn(2, 4), nn.functional.mse_loss, torch.randn(2, 4)

def fine(width: int = 4):
    model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 4))
    return model, torch.randn(6, 4), nn.functional.mse_loss, torch.randn(6, 4)
"""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{place}:modules", r"must be a torch.nn.Sequential of its layers: embedding, blocks, head, got Linear"),
        ("{place}:lossless", r"must return \(model, inputs, loss, targets\), inputs and targets a tensor each"),
        ("{place}:shared", r"layers 0 and 1 share weights, only the first and the last layer may; give each its own"),
        ("{place}:fine,depth=3", r"has no option 'depth'; it has width"),
        ("{place}:fine,width", r"options must be as in train:gpt,layers=4,hidden=64, got 'width'"),
        ("{place}:fine,width=0", r"width: must be a whole number in 1\.\."),
        ("train:gpt,hidden=30", r"hidden must be a multiple of 4 heads, got 30"),
    ],
)
def test_a_factory_of_something_else_is_refused(tmp_path: Path, model: str, message: str) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    with pytest.raises(InputError, match=f"^model: .*{message}"):
        load_layers(model.format(place=tmp_path / "factories.py"))


def test_an_embedding_that_the_head_shares_is_in_the_profile_and_has_two_names() -> None:
    found = load_layers("train:gpt,layers=1,hidden=8,vocabulary=10,tied=1")
    assert found.shared == (("embedding.token.weight", "head.scores.weight"),)
    apart = dict(found.untied().stage(0, 3).named_parameters())
    first, last = (apart[name] for name in found.shared[0])
    assert first is not last
    assert torch.equal(first, last)
    assert measure_layers(found, repeats=1).embedding_bytes == 4 * 8 * 10
    assert load_layers("train:gpt,layers=1").shared == ()


def test_options_reach_the_factory_and_a_batch_must_divide(tmp_path: Path) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    found = load_layers(f"{tmp_path / 'factories.py'}:fine,width=7")
    assert found.boundary_bytes((1,), 3) == (4 * 2 * 7,)
    with pytest.raises(InputError, match="the batch of 6 must divide into 4 micro-batches"):
        found.split(4)


def test_a_users_own_train_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(FACTORIES.replace("def fine", "def gpt"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert [name for name, _ in load_layers("train:gpt").layers] == ["0", "1"]
    finally:
        sys.modules.pop("train", None)
