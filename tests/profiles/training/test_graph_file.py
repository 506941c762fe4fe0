"""Training graph files: what is written is read back, and what is broken is refused by file, node and field."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.profiles.training import networks
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import read_training_graph, training_graph_text, write_training_graph

WAY: dict[str, Any] = {"duration_s": 0.001, "workspace_bytes": 64, "name": "gemm", "power_w": 200.0}
GRAPH: dict[str, Any] = {
    "format": "gapless.training-graph",
    "version": 1,
    "name": "tiny",
    "batch": 2,
    "fixed_bytes": 4096,
    "source": "made up",
    "forward": [
        {"name": "conv", "op": "conv", "output_bytes": 1024, "inputs": [], "ways": [WAY, {"duration_s": 0.002}]},
        {
            "name": "relu", "op": "relu_", "output_bytes": 1024, "inputs": [0], "ways": [WAY], "again": [WAY],
            "overwrites": 0, "in_place": [{"duration_s": 0.001, "workspace_bytes": -1024}],
        },
        {"name": "bits", "op": "bits", "output_bytes": 32, "inputs": [1], "ways": [WAY], "creator": 1},
        {"name": "loss", "op": "loss", "output_bytes": 4, "inputs": [1], "ways": [{"duration_s": 0}]},
    ],
    "backward": [
        {
            "name": "relu_grad", "op": "relu_grad", "forward": 1, "output_bytes": 1024, "gradients": [3],
            "variants": [{"name": "output", "needs": [1], "ways": [WAY]}, {"needs": [2], "ways": [WAY]}],
            "fixed_bytes": 4096,
        },
        {
            "name": "conv_grad", "op": "conv_grad", "forward": 0, "output_bytes": 0, "gradients": [4],
            "variants": [{"needs": [], "ways": [WAY]}], "fixed_bytes": 8192,
        },
    ],
}  # fmt: skip
MONET_NODE: dict[str, Any] = {
    "op": "aten::conv", "mem_bytes": 1000, "args": [[]], "fixed_mem_bytes": 5000,
    "compute_ms": [1.001], "workspace_mib": [0.5],
}  # fmt: skip
MONET: dict[str, Any] = {
    "model": "toy", "batch": 2, "loss": 1, "num_fwd_with_intermediates": 1, "select_conv_algo": False,
    "do_inplace": False, "conv_list": [], "inplace_of": {},
    "nodes": [
        {**MONET_NODE, "id": 0, "kind": "fwd", "recompute_compute_ms": [1.0], "recompute_workspace_mib": [0]},
        {**MONET_NODE, "id": 1, "kind": "loss", "op": "loss::loss", "args": [[0]], "recompute_compute_ms": [1.0],
         "recompute_workspace_mib": [0]},
        {**MONET_NODE, "id": 2, "kind": "bwd", "args": [[0, 1]], "fwd_id": 0},
    ],
}  # fmt: skip


def write(folder: Path, content: Any) -> Path:
    path = folder / "graph.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data = copy.deepcopy(GRAPH)
    change(data)
    return data


@pytest.mark.thorough("resnet101")
@pytest.mark.parametrize("name", networks.network_names())
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_every_network_comes_back_as_it_was(tmp_path: Path, name: str, suffix: str) -> None:
    graph = networks.build(name, batch=3)
    write_training_graph(tmp_path / f"graph.{suffix}", graph)
    back = read_training_graph(tmp_path / f"graph.{suffix}")
    assert back == graph
    assert back.source == graph.source
    assert training_graph_text(back) == training_graph_text(graph)


def test_written_files_do_not_depend_on_the_time(tmp_path: Path) -> None:
    graph = networks.build("vgg16", batch=1)
    for number in (1, 2):
        write_training_graph(tmp_path / f"{number}.gz", graph)
    assert (tmp_path / "1.gz").read_bytes() == (tmp_path / "2.gz").read_bytes()
    assert gzip.decompress((tmp_path / "1.gz").read_bytes()).decode() == training_graph_text(graph)


def test_optional_fields_have_their_defaults(tmp_path: Path) -> None:
    graph = read_training_graph(write(tmp_path, GRAPH))
    first, relu, bits, _ = graph.forward
    assert [impl.workspace_bytes for impl in first.implementations] == [64, 0]
    assert [impl.power_w for impl in first.implementations] == [200.0, None]
    assert (relu.overwrites, len(relu.again), relu.creator) == (0, 1, None)
    assert (bits.creator, bits.overwrites, bits.in_place) == (1, None, ())
    assert [variant.name for variant in graph.backward[0].variants] == ["output", ""]
    assert read_training_graph(write(tmp_path, training_graph_text(graph))) == graph


def test_measured_instances_are_recognised(tmp_path: Path) -> None:
    graph = read_training_graph(write(tmp_path, MONET))
    assert isinstance(graph, TrainingGraph)
    assert (graph.name, graph.batch, graph.loss, graph.fixed_bytes) == ("toy", 2, 1, 5 * 1024)
    assert graph.forward[0].output_bytes == 1024
    assert graph.forward[0].implementations[0].duration_s == pytest.approx(1.01e-3)


BROKEN: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.update(version=2), r"version: must be 1, got 2"),
    (lambda d: d.update(format="gapless.plan"), r"format: must be gapless.training-graph, got"),
    (lambda d: d.update(batch=0), r"batch: must be a whole number >= 1, got 0"),
    (lambda d: d.update(fixed_bytes=-1), r"fixed_bytes: must be a whole number in 0\.\.\d+, got -1"),
    (lambda d: d.update(forward=[]), r"forward: must be a list of at least one, got \[\]"),
    (lambda d: d.update(backward=[]), r"backward: must be a list of at least one, got \[\]"),
    (lambda d: d.update(nodes=[]), r"field 'nodes' is unknown"),
    (lambda d: d.pop("name"), r"field 'name' is missing"),
    (lambda d: d["forward"][1].pop("op"), r"forward\[1\]: field 'op' is missing"),
    (
        lambda d: d["forward"][1].update(ways=[]),
        r"forward\[1]: ways: must be a list of at least one, got \[\]",
    ),
    (lambda d: d["forward"][1].update(againn=[]), r"forward\[1\]: field 'againn' is unknown"),
    (lambda d: d["forward"][1].update(again=[]), r"forward\[1\]: again: must be a list of at least one"),
    (
        lambda d: d["forward"][1].update(again=[WAY, WAY]),
        r"forward node 1 'relu': again and in_place must be as many as implementations, 1",
    ),
    (lambda d: d["forward"][1].update(output_bytes=-4), r"forward\[1\]: output_bytes: must be .* in 0\.\.\d+, got -4"),
    (lambda d: d["forward"][1].update(output_bytes=0.5), r"forward\[1\]: output_bytes: must be a whole .*, got 0.5"),
    (lambda d: d["forward"][1].update(output_bytes=True), r"forward\[1\]: output_bytes: .*, got true"),
    (lambda d: d["forward"][1].update(output_bytes=2**62), r"forward\[1\]: output_bytes: must be a whole number in"),
    (lambda d: d["forward"][0].update(inputs=[0]), r"forward\[0\]: inputs: must be an empty list, .*, got \[0\]"),
    (lambda d: d["forward"][0].update(creator=0), r"forward\[0\]: creator: must be absent, .*, got 0"),
    (lambda d: d["forward"][1].update(inputs=[1]), r"forward\[1\]: inputs: must be node numbers in 0\.\.0, got \[1\]"),
    (lambda d: d["forward"][1].update(inputs=[-1]), r"forward\[1\]: inputs\[0\]: must be a whole number >= 0, got -1"),
    (lambda d: d["forward"][3].update(inputs=[1, 1]), r"forward\[3\]: inputs: must be different node numbers"),
    (lambda d: d["forward"][1].update(overwrites=5), r"forward\[1\]: overwrites: must be 0"),
    (lambda d: d["forward"][1].pop("in_place"), r"forward node 1 'relu': overwrites and in_place must be given"),
    (lambda d: d["forward"][2].update(creator=2), r"forward\[2\]: creator: must be a whole number in 0\.\.1, got 2"),
    (
        lambda d: d["forward"][0]["ways"][1].update(duration_s=-1),
        r"forward\[0\]: ways\[1\]: duration_s: must be .* >= 0",
    ),
    (
        lambda d: d["forward"][0]["ways"][0].update(power_w=-1),
        r"forward\[0\]: ways\[0\]: power_w: must be a number >= 0",
    ),
    (
        lambda d: d["forward"][0]["ways"][0].update(power_w=None),
        r"ways\[0\]: power_w: must be a number >= 0, got null",
    ),
    (
        lambda d: d["forward"][0]["ways"][0].update(power=1),
        r"ways\[0\]: field 'power' is unknown; known are duration_s",
    ),
    (lambda d: d["forward"][0]["ways"].append(7), r"forward\[0\]: ways\[2\]: must be a JSON object"),
    (lambda d: d["backward"][0].update(forward=3), r"backward\[0\]: forward: must be a whole number in 0\.\.2, got 3"),
    (lambda d: d["backward"][0].update(gradients=[4]), r"backward\[0\]: gradients: must be node numbers in 3\.\.3"),
    (lambda d: d["backward"][0].update(gradients=[2]), r"backward\[0\]: gradients: must be node numbers in 3\.\.3"),
    (lambda d: d["backward"][1].update(gradients=[5]), r"backward\[1\]: gradients: must be node numbers in 3\.\.4"),
    (lambda d: d["backward"][1].update(variants=[]), r"backward\[1\]: variants: must be a list of at least one"),
    (lambda d: d["backward"][1]["variants"][0].update(needs=[3]), r"backward\[1\]: variants\[0\]: needs: must be node"),
    (
        lambda d: d["backward"][1]["variants"][0].update(need=1),
        r"backward\[1\]: variants\[0\]: field 'need' is unknown",
    ),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[case[1][:40] for case in BROKEN])
def test_broken_file_is_refused_by_node_and_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    with pytest.raises(InputError, match=rf"graph\.json: (.*: )?{message}") as caught:
        read_training_graph(write(tmp_path, changed(change)))
    assert "\n" not in str(caught.value)


def test_what_is_no_graph_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be a gapless.training-graph \(field 'format'\) or a published"):
        read_training_graph(write(tmp_path, {"name": "x"}))
    with pytest.raises(InputError, match=r"graph\.json: numbers must be finite, got NaN"):
        read_training_graph(write(tmp_path, json.dumps(changed(lambda d: d.update(fixed_bytes=float("nan"))))))
    with pytest.raises(InputError, match=r"graph\.json: not JSON"):
        read_training_graph(write(tmp_path, "{"))
    with pytest.raises(InputError, match=r"cannot read .*absent\.json: No such file"):
        read_training_graph(tmp_path / "absent.json")
    (tmp_path / "cut.json").write_bytes(gzip.compress(b"{}")[:-9])
    with pytest.raises(InputError, match=r"cut\.json: not readable: Compressed file ended"):
        read_training_graph(tmp_path / "cut.json")
