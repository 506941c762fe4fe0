"""The reader of MONeT's measured graphs: rounding, choices, failed algorithms, and what it refuses."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.profiles.training.graph_file import read_training_graph
from gapless.profiles.training.measured import TIME_UNIT_S, instance_from, is_published_instance

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "monet" / "instances"


def node(number: int, kind: str, op: str, args: list[list[int]], **fields: Any) -> dict[str, Any]:
    profile = {"workspace_mib": [0.0], "compute_ms": [0.011]}
    profile |= {name: fields.pop(name) for name in tuple(profile) if name in fields}
    prefixed = {
        f"{prefix}{name}": values for prefix in ("", "recompute_", "inplace_") for name, values in profile.items()
    }
    base = {"id": number, "kind": kind, "op": op, "args": args, "mem_bytes": 1000, "fixed_mem_bytes": 1500}
    return {**base, **prefixed, **fields}


def instance(**changes: Any) -> dict[str, Any]:
    """Convolution, ReLU with a mask on the side, loss, and the two backward nodes."""
    conv = {"compute_ms": [1.0, -1000, 0.5], "workspace_mib": [0.0, 0.0, 0.0005]}
    nodes = [
        node(0, "fwd", "conv", [[]], **conv),
        node(1, "fwd", "relu", [[0]], inplace_workspace_mib=[-0.001], recompute_compute_ms=[0.02]),
        node(2, "int", "mask", [[1]], parent=1, mem_bytes=10),
        node(3, "loss", "loss", [[1]]),
        node(4, "bwd", "relu_ip", [[0, 3], [2, 3]], fwd_id=1, compute_ms=[1.0, 2.0], workspace_mib=[0.0, 1.0]),
        node(5, "bwd", "conv_param", [[4]], fwd_id=0, fixed_mem_bytes=3000, **conv),
    ]
    base = {
        "model": "small",
        "batch": 2,
        "loss": 3,
        "num_fwd_with_intermediates": 3,
        "nodes": nodes,
        "conv_list": [0, 5],
        "select_conv_algo": True,
        "do_inplace": True,
        "inplace_of": {"1": 0},
    }
    return {**base, **changes}


def read(path: Path, data: dict[str, Any]) -> Any:
    path.write_text(json.dumps(data))
    return read_training_graph(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "small.json"


def test_sizes_and_times_are_rounded_up_to_whole_units(path: Path) -> None:
    graph = read(path, instance())
    assert graph.forward[0].output_bytes == 1024
    assert graph.fixed_bytes == 2048
    assert graph.forward[1].implementations[0].duration_s == pytest.approx(2 * TIME_UNIT_S)
    assert graph.forward[0].implementations[1].workspace_bytes == 1024


def test_failed_algorithms_are_left_out_and_the_others_keep_their_names(path: Path) -> None:
    graph = read(path, instance())
    assert [impl.name for impl in graph.forward[0].implementations] == ["algorithm 0", "algorithm 2"]
    assert [impl.duration_s for impl in graph.backward[1].variants[0].implementations] == pytest.approx([1e-3, 5e-4])


def test_without_the_choice_of_algorithms_there_is_only_the_default(path: Path) -> None:
    graph = read(path, instance(select_conv_algo=False))
    assert [impl.name for impl in graph.forward[0].implementations] == ["algorithm 0"]


def test_in_place_recomputation_and_creator_are_read(path: Path) -> None:
    graph = read(path, instance())
    relu, mask = graph.forward[1:3]
    assert (relu.overwrites, relu.in_place[0].workspace_bytes) == (0, -1024)
    assert relu.again[0].duration_s == pytest.approx(2e-5)
    assert (mask.creator, mask.inputs, mask.output_bytes) == (1, (1,), 1024)
    assert read(path, instance(do_inplace=False)).forward[1].overwrites is None


def test_backward_variants_are_split_into_forward_needs_and_gradients(path: Path) -> None:
    graph = read(path, instance())
    relu = graph.backward[0]
    assert [variant.needs for variant in relu.variants] == [(0,), (2,)]
    assert [variant.implementations[0].duration_s for variant in relu.variants] == pytest.approx([1e-3, 2e-3])
    assert relu.gradients == (graph.loss,)
    assert graph.backward[1].fixed_bytes == 3072


def test_gzipped_and_plain_files_read_alike(path: Path) -> None:
    plain = read(path, instance())
    path.write_bytes(gzip.compress(json.dumps(instance()).encode()))
    assert read_training_graph(path) == plain


def test_the_format_is_recognised() -> None:
    assert is_published_instance(Record(instance(), "x"))
    assert not is_published_instance(Record({"nodes": []}, "x"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": []}, "nodes: must be more than the 4 up to the loss"),
        ({"loss": 0}, "loss: must be a whole number >= 1"),
        ({"batch": 0}, "batch: must be"),
        ({"select_conv_algo": 1}, "select_conv_algo: must be true or false"),
    ],
)
def test_a_broken_field_is_named(path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(path, instance(**changes))


def test_variants_that_read_other_gradients_are_refused(path: Path) -> None:
    data = instance()
    data["nodes"][5]["args"] = [[4], [3]]
    with pytest.raises(InputError, match="the same gradients in every implementation"):
        read(path, data)


def test_a_missing_or_damaged_file_is_named(path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_training_graph(path)
    path.write_bytes(gzip.compress(b"{}" * 100)[:20])
    with pytest.raises(InputError, match="not readable: Compressed file ended"):
        read_training_graph(path)


@pytest.mark.parametrize(
    ("name", "forward", "intermediates", "backward"),
    [
        ("vgg16_176_inplace_conv_multiway_newnode", 61, 20, 56),
        ("un_11_inplace_conv_multiway_newnode", 90, 22, 86),
        ("mobilenet_v2_272_inplace_conv_multiway_newnode", 154, 0, 189),
        ("resnet50_184_inplace_conv_multiway_newnode", 226, 50, 229),
    ],
)
def test_measured_models_have_their_known_sizes(name: str, forward: int, intermediates: int, backward: int) -> None:
    if not DATA.is_dir():
        pytest.skip("the measured instances of MONeT (shared/data/monet beside the checkout) are not here")
    graph = read_training_graph(DATA / f"{name}.json.gz")
    assert len(graph.forward) == forward
    assert sum(its.creator is not None for its in graph.forward) == intermediates
    assert len(graph.backward) == backward
    fixed = [graph.fixed_bytes, *(its.fixed_bytes for its in graph.backward)]
    assert fixed == sorted(fixed)


def test_damaged_instances_are_refused_in_one_line() -> None:
    random, record = Random(0), instance()
    junk: list[Any] = [None, -1, "x", [], {}, 1e30, True, [[]], [None]]
    for _ in range(400):
        place = random.choice(record["nodes"]) if random.random() < 0.8 else record
        key = random.choice(list(place))
        value = place[key]
        place[key] = random.choice(junk)
        with suppress(InputError):  # what isn't read, or is as good, may pass
            instance_from(Record(record, "instance.json"))
        place[key] = value
