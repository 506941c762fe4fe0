"""The shipped fusion profiles: as they are built, with the tensors of the public models, close to measured ones."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.grammar import named_compressor
from gapless.profiles.gradients.communication import FlatNetwork, all_gather_cost, all_reduce_cost
from gapless.profiles.gradients.modes import plain_mode
from gapless.profiles.gradients.named import (
    build_fusion_profile,
    find_fusion_profile,
    fusion_profile_names,
    load_fusion_profile,
    main,
    with_compressors,
)
from gapless.profiles.gradients.profile_file import fusion_profile_text, read_fusion_profile

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TENSORS = {"resnet50": 161, "resnet101": 314, "vgg16": 32, "bert-base": 199, "bert-large": 391, "gpt2": 148}
MEASURED = {"bert-base": "bert"}
UNMEASURED = {"bert-large"}
SHAPES = DATA / "model_tensors"
PREFIXES = ("transformer.", "bert.")


def need(path: Path) -> dict[str, Any]:
    """The JSON object in a file of real data, or a skip."""
    if not path.exists():
        pytest.skip(f"{path.name} (shared/data beside the checkout) is not here")
    data: dict[str, Any] = json.loads(path.read_text())
    return data


@pytest.mark.parametrize("name", fusion_profile_names())
def test_shipped_file_is_what_the_builder_gives(name: str) -> None:
    shipped = (files("gapless.profiles.gradients") / f"{name}.json").read_text(encoding="utf-8")
    assert shipped == fusion_profile_text(build_fusion_profile(name))


def test_builder_writes_a_file_for_every_profile(tmp_path: Path) -> None:
    main([str(tmp_path)])
    assert {path.stem for path in tmp_path.iterdir()} == set(fusion_profile_names())
    assert read_fusion_profile(tmp_path / "vgg16.json").name == "vgg16"


def test_every_file_has_a_name_and_the_published_number_of_tensors() -> None:
    folder = files("gapless.profiles.gradients")
    assert {entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".json")} == set(TENSORS)
    assert {name: load_fusion_profile(name).tensor_count for name in fusion_profile_names()} == TENSORS


@pytest.mark.parametrize("name", fusion_profile_names())
def test_source_states_batch_device_rates_and_costs(name: str) -> None:
    source = load_fusion_profile(name).source
    for part in ("public architecture", "v100", "15.7 TFLOP/s", "75 %", "900 GB/s", "dgc", "8 ranks", "25 Gb/s"):
        assert part in source


@pytest.mark.parametrize("name", ["resnet50", "resnet101", "bert-base", "bert-large", "gpt2"])
def test_tensors_are_those_of_the_public_model(name: str) -> None:
    tensors = need(DATA / "model_tensors" / f"{name.replace('-', '_')}.json")["tensors"]
    profile = load_fusion_profile(name)
    sizes = dict(zip(profile.tensor_names, profile.size_bytes.tolist(), strict=True))
    assert sizes == {tensor["name"]: 4 * tensor["numel"] for tensor in tensors}


def measured(name: str) -> tuple[list[str], list[int]]:
    """Names in ready order, without what frameworks put in front, and gaps in microseconds."""
    model = need(DATA / "cupcake" / "espresso_profiles.json")["models"][MEASURED.get(name, name)]
    names = []
    for tensor in model["tensors"]:
        title = tensor["name"].replace("dense_act", "dense")
        names.append(next((title.removeprefix(prefix) for prefix in PREFIXES if title.startswith(prefix)), title))
    return names, model["bp_gap_us"]


@pytest.mark.parametrize("name", [name for name in fusion_profile_names() if name not in UNMEASURED])
def test_gradients_become_ready_in_the_measured_order(name: str) -> None:
    names = list(load_fusion_profile(name).tensor_names)
    theirs = measured(name)[0]
    heads = 2 if name == "bert-base" else 0  # a pooler here, an answer span there
    assert names[heads:] == theirs[heads:]


@pytest.mark.parametrize("name", ["resnet50", "resnet101"])
def test_times_of_a_resnet_are_close_to_the_measured_ones(name: str) -> None:
    """On a V100 too: the whole backward pass to 10 %, each gradient's share of it to 4 %."""
    profile = load_fusion_profile(name)
    ours, theirs = np.cumsum(profile.backward_s), np.cumsum(measured(name)[1]) * 1e-6
    assert ours[-1] == pytest.approx(theirs[-1], rel=0.1)
    np.testing.assert_allclose(ours / ours[-1], theirs / theirs[-1], atol=0.04)


def test_profile_takes_other_compressors_and_another_network() -> None:
    profile, network = load_fusion_profile("vgg16"), FlatNetwork(4, 1e9, 1e-6)
    dgc, powersgd = named_compressor("dgc"), named_compressor("powersgd:2")
    other = with_compressors(profile, [NONE, dgc, powersgd], network, speed=2.0)
    plain, by_ratio, low_rank = other.modes
    assert plain == plain_mode(all_reduce_cost(network))
    assert (by_ratio.encode, by_ratio.decode) == (dgc.encode_cost(2.0), dgc.decode_cost(4, 2.0))
    assert by_ratio.communication == all_gather_cost(network, 50)
    assert other.tensor_names == profile.tensor_names
    assert low_rank.communication.alpha_s == pytest.approx(3 * plain.communication.alpha_s)
    weight, bias = profile.tensor_names.index("classifier.6.weight"), profile.tensor_names.index("classifier.6.bias")
    assert low_rank.sent_bytes is not None
    assert low_rank.encoded_bytes is not None
    assert (low_rank.encoded_bytes[weight], low_rank.sent_bytes[weight]) == (4 * 1000 * 4096, 4 * 2 * (1000 + 4096))
    assert (low_rank.encoded_bytes[bias], low_rank.sent_bytes[bias]) == (0, 4 * 1000)


@pytest.mark.skipif(not SHAPES.is_dir(), reason=f"the models' tensors are not at {SHAPES}")
@pytest.mark.parametrize(
    ("name", "listed"),
    [("resnet50",) * 2, ("resnet101",) * 2, ("bert-base", "bert_base"), ("bert-large", "bert_large"), ("gpt2",) * 2],
)
def test_shapes_are_those_of_the_public_definition(name: str, listed: str) -> None:
    """But for GPT-2's linear layers, which the framework holds transposed: no cost depends on that."""
    known = {
        tensor["name"]: tensor["shape"] for tensor in json.loads((SHAPES / f"{listed}.json").read_text())["tensors"]
    }
    profile = load_fusion_profile(name)
    for tensor, shape, size in zip(profile.tensor_names, profile.shapes, profile.size_bytes, strict=True):
        there = next(each for full, each in known.items() if full.endswith(tensor))
        assert shape == tuple(there) or (name == "gpt2" and shape == tuple(reversed(there))), tensor
        assert size == 4 * np.prod(shape)


def test_unknown_name_is_refused_with_a_hint() -> None:
    with pytest.raises(
        InputError, match=r"profile: must be a file or one of resnet50, .*, got 'gtp2'; did you mean 'gpt2'\?"
    ):
        load_fusion_profile("gtp2")


def test_profile_is_found_by_name_or_by_file(tmp_path: Path) -> None:
    main([str(tmp_path)])
    assert find_fusion_profile("gpt2").name == find_fusion_profile(str(tmp_path / "gpt2.json")).name == "gpt2"
    with pytest.raises(InputError, match=r"must be a file or one of .*, got 'resnet5'; did you mean 'resnet50'"):
        find_fusion_profile("resnet5")
    with pytest.raises(InputError, match=r"cannot read .*absent\.json"):
        find_fusion_profile(str(tmp_path / "absent.json"))
