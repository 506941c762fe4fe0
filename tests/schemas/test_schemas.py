"""The schemas agree with the readers: on all that is shipped and written, and on what is broken in structure."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from gapless.cli.main import main
from gapless.encodings.taccl import read_sketch
from gapless.errors import InputError
from gapless.io import mscclpp
from gapless.io.formats import collective_file, ddp_buckets, fsdp2
from gapless.io.formats.groups_file import read_groups
from gapless.io.formats.measured_file import read_measured
from gapless.io.formats.tuned_file import read_selector_file, read_table
from gapless.io.plan import read_plan
from gapless.io.record import parse_record
from gapless.profiles.gradients import profile_file as fusion_profile_file
from gapless.profiles.pipelines import compression as compression_errors_file
from gapless.profiles.pipelines import profile as pipeline_profile_file
from gapless.profiles.pipelines.named import NAMED
from gapless.profiles.steps import profile as training_step_file
from gapless.profiles.traces.files import read_npy_trace
from gapless.profiles.training import graph_file as training_graph_file
from gapless.profiles.training.networks import build
from gapless.schemas import load_schema, schema_names
from gapless.sweeps import read_instances
from gapless.sweeps.measured import read_measure_file
from gapless.sweeps.sweep_file import sweep_fields
from gapless.topologies.files import read_machine

SHIPPED = {
    "topology": "gapless.topologies",
    "sketch": "gapless.encodings.taccl.sketch.shipped",
    "fusion-profile": "gapless.profiles.gradients",
    "training-step": "gapless.profiles.steps",
}

TOPOLOGY = """
{"format": "gapless.topology", "version": 1, "name": "pair", "ranks_per_node": 2,
 "links":    [{"from": 0, "to": 1, "alpha_us": 0.7, "beta_us_per_mb": 46, "both_ways": true, "resources": ["bus"]}],
 "switches": [{"ranks": [0, 1], "alpha_us": 0.7, "beta_us_per_mb": 8}],
 "nics":     [{"ranks": [0, 1], "alpha_us": 1.7, "beta_us_per_mb": 106}],
 "fabric":   {"rails": true, "nodes_per_leaf": 16, "uplinks_per_leaf": 8, "alpha_us": 0.3, "beta_us_per_mb": 40},
 "source": "where the numbers are from"}"""

CLUSTER = """
{"format": "gapless.topology", "version": 1, "name": "three", "source": "hand",
 "nodes":  [{"machine": "ndv2", "without_ranks": [3], "count": 2},
            {"machine": "ndv2", "nics": [{"number": 0, "alpha_us": 1.7, "beta_us_per_mb": 212}]}],
 "fabric": {"rails": true}}"""

LISTED = """
{"format": "gapless.topology", "version": 1, "name": "alone",
 "nodes": [{"node": {"name": "pair", "ranks_per_node": 2, "nics": [
   {"ranks": [0], "alpha_us": 1, "beta_us_per_mb": 1}]}}]}"""

SKETCH = """
{"intranode_sketch": {"strategy": "switch", "switches": [[0, 1]], "switch_hyperedge_strategy": ["uc-min"]},
 "internode_sketch": {"strategy": "relay", "internode_conn": {"0": [1]}, "beta_split": {"0": 2},
                      "gpus_to_sender_rev_map": {"0": [0, 1]}, "enforce_ordering": true},
 "symmetry_offsets": [[2, 4]], "symmetry_permutations": [[1, 0]],
 "symmetry_partition": [[0], [1]], "nnodes": 2,
 "hyperparameters": {"input_chunkup": 2, "input_size": "1MB"}}"""

BY_RANK = """
{"format": "gapless.collective", "version": 1, "name": "swap", "ranks": 2, "reduces": false, "chunks_per_rank": 1,
 "inputs": [[0], [1]], "outputs": [[1], [0]]}"""

GROUPS = """
{"format": "gapless.groups", "version": 1, "groups": [
  {"axes": "ep=2", "size": "2KB"}, {"ranks": [0, 3], "collective": "reduce", "root": 1, "size": "1KB"}]}"""

BY_CHUNK = """
{"format": "gapless.collective", "version": 1, "name": "swap", "ranks": 2,
 "chunks": [{"from": [0], "to": [1]}, {"from": [1], "to": [0]}]}"""

SWEEP = """
{"format": "gapless.sweep", "version": 1, "grid": [
 {"system": "monet", "graph": "vgg16", "batch": [64, 128], "budget": ["0.6x"], "gap": 0.05, "objective": "time"},
 {"system": "taccl", "topology": ["ring:4", "dgx1"], "size": "1MB", "path_slack": 0, "method": ["auto", "greedy"]},
 {"system": "cupcake", "profile": "resnet50", "time_limit": 5},
 {"system": "bagpipe", "trace": "zipf", "table_rows": "40,300", "trainers": [2], "batch_size": 8, "exponent": 1.5}]}"""

MEASURED = """
{"format": "gapless.measured", "version": 1, "plan_sha256": "00ff", "date": "2026-01-01T00:00:00+00:00",
 "backend": "gloo", "ranks": 2, "predicted_s": 0.5, "library_predicted_s": 0.75, "measured_times_s": [0.5, 0.625],
 "library_times_s": [1.0]}"""
MEASURE = """
{"format": "gapless.measure", "version": 1, "command": "{python} index.py {kind} {probes}", "time_out_s": 5, "seed": 1,
 "confidence": 0.9, "runs": {"first": 2, "most": 4, "budget": 12},
 "metrics": {"rate": {"path": "rate", "unit": "1/s"}, "memory": {"path": "memory.kib", "unit": "KiB"}},
 "grid": [{"kind": "flat", "probes": 0}, {"kind": ["ivf"], "probes": [1, 4]}]}"""

TUNED = """
{"format": "gapless.tuned", "version": 1, "date": "2026-01-01T00:00:00+00:00", "backend": "gloo", "ranks": 4,
 "plans": [{"file": "plans/0.json", "sha256": "00ff"}],
 "ranges": [{"collective": "allreduce", "ranks": [0, 1], "min_bytes": 10, "max_bytes": 20, "plan": 0}]}"""
TUNED_TABLE = """
{"format": "gapless.tuned-table", "version": 1, "date": "2026-01-01T00:00:00+00:00", "backend": "gloo", "ranks": 4,
 "repeats": 9, "topology": "measured", "rows": [{"collective": "allreduce", "ranks": [0, 1], "size_bytes": 1000,
 "library_s": 0.5, "noise": 0.125, "winner": 0, "made_by": "ring", "predicted_s": 0.25, "plan_s": 0.25,
 "first_ratio": 0.5, "tried": [{"made_by": "ring", "predicted_s": 0.25, "measured_s": 0.25}]}]}"""

READERS: dict[str, Callable[[Path], object]] = {
    "topology": read_machine,
    "sketch": read_sketch,
    "training-graph": training_graph_file.read_training_graph,
    "fusion-profile": fusion_profile_file.read_fusion_profile,
    "pipeline-profile": pipeline_profile_file.read_pipeline_profile,
    "compression-errors": compression_errors_file.read_compression_table,
    "collective": collective_file.read_collective,
    "groups": lambda path: read_groups(path, 4, "broadcast", 1000),
    "ddp-buckets": ddp_buckets.read_ddp_buckets,
    "fsdp2": fsdp2.read_fsdp2,
    "plan": read_plan,
    "mscclpp-plan": mscclpp.read_plan,
    "sweep": read_instances,
    "measured": read_measured,
    "tuned": read_selector_file,
    "tuned-table": read_table,
    "training-step": training_step_file.find_training_step,
    "measure": read_measure_file,
}


def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(load_schema(name))


def faults(name: str, data: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(data)]


def parsed(text: str) -> dict[str, Any]:
    record = parse_record(text, "text")
    return {name: record.raw(name) for name in record.names()}


def example_of(module: Any) -> dict[str, Any]:
    """The file that stands as an example in a reader's own docstring."""
    text = module.__doc__.split("::\n", 1)[1]
    lines = [line for line in text.split("\n\n", 1)[0].splitlines() if line.startswith("    ")]
    return parsed("\n".join(lines))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small plan of each system, written by the command line."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "pair.json").write_text(TOPOLOGY)
    (folder / "graph.json").write_text(json.dumps(example_of(training_graph_file)))
    np.save(folder / "ids.npy", np.arange(48).reshape(24, 2) % 11)
    commands = {
        "taccl.json": f"solve taccl --topology-file {folder}/pair.json --size 1MB",
        "monet.json": f"solve monet --graph {folder}/graph.json --budget 1MB",
        "cupcake.json": "solve cupcake --profile resnet50",
        "fsdp.json": "solve fsdp --profile gpt:layers=2,hidden=256 --ranks 8 --bandwidth 5GB/s --method last-kept",
        "bagpipe.npz": f"solve bagpipe --trace {folder}/ids.npy --trainers 2 --batch-size 4 --lookahead 2",
    }
    for name, command in commands.items():
        assert main([*command.split(), "--quiet", "-o", str(folder / name)]) == 0
    exports = (
        ("cupcake", "ddp-buckets", "b.json"), ("taccl", "mscclpp", "mscclpp.json"), ("fsdp", "fsdp2", "fsdp2.json"),
    )  # fmt: skip
    for source, form, target in exports:
        assert main(["export", str(folder / f"{source}.json"), "--format", form, "-o", str(folder / target)]) == 0
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_one_and_says_what_it_is_for(name: str) -> None:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert schema["description"]


def test_unknown_schemas_are_refused() -> None:
    with pytest.raises(InputError, match=r"schema: must be one of .*, got 'plans'"):
        load_schema("plans")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_are_valid(name: str) -> None:
    shipped = [entry for entry in files(SHIPPED[name]).iterdir() if entry.name.endswith(".json")]
    assert shipped
    for entry in shipped:
        assert not faults(name, parsed(entry.read_text(encoding="utf-8"))), entry.name


@pytest.mark.parametrize("system", ["taccl", "monet", "cupcake"])
def test_freshly_written_plans_are_valid(plans: dict[str, Path], system: str) -> None:
    assert not faults("plan", json.loads(plans[f"{system}.json"].read_text()))


def test_a_freshly_written_bagpipe_run_is_valid(plans: dict[str, Path]) -> None:
    with np.load(plans["bagpipe.npz"]) as run:
        meta = json.loads(run["meta"].tobytes())
    assert not faults("bagpipe-run", meta)
    assert faults("bagpipe-run", {**meta, "version": 1})
    assert faults("bagpipe-run", {**meta, "cluster": {**meta["cluster"], "trainers": 0}})


def test_freshly_written_buckets_graphs_and_profiles_are_valid(plans: dict[str, Path]) -> None:
    assert not faults("ddp-buckets", json.loads(plans["b.json"].read_text()))
    assert not faults("fsdp2", json.loads(plans["fsdp2.json"].read_text()))
    assert not faults("mscclpp-plan", json.loads(plans["mscclpp.json"].read_text()))
    assert not faults("training-graph", json.loads(training_graph_file.training_graph_text(build("resnet50", 8))))
    for build_profile in NAMED.values():
        text = pipeline_profile_file.pipeline_profile_text(build_profile())
        assert not faults("pipeline-profile", json.loads(text))


@pytest.mark.parametrize(
    ("array", "fine"),
    [
        (np.zeros((3, 2), dtype=np.int32), True),
        (np.asfortranarray(np.zeros((3, 2), dtype=">u8")), True),
        (np.zeros((3, 2)), False),
        (np.zeros(3, dtype=np.int64), False),
        (np.zeros((0, 2), dtype=np.int64), False),
    ],
)
def test_headers_of_traces_are_refused_by_both_or_none(tmp_path: Path, array: np.ndarray[Any, Any], fine: bool) -> None:
    np.save(tmp_path / "ids.npy", array)
    with (tmp_path / "ids.npy").open("rb") as stream:
        np.lib.format.read_magic(stream)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    header = {"descr": dtype.str, "fortran_order": fortran, "shape": list(shape)}
    assert (not faults("trace-header", header)) == fine
    if fine:
        read_npy_trace(tmp_path / "ids.npy")
    else:
        with pytest.raises(InputError):
            read_npy_trace(tmp_path / "ids.npy")


@pytest.mark.parametrize("system", ["taccl", "monet", "bagpipe", "cupcake"])
def test_the_schema_of_sweeps_has_the_fields_of_every_system(system: str) -> None:
    known = load_schema("sweep")["$defs"][system]
    assert set(known["properties"]) == {"system", *sweep_fields(system)}
    assert set(known["required"]) == {
        "system",
        *(name for name, field in sweep_fields(system).items() if field.is_required),
    }


# -- broken on purpose -------------------------------------------------------------------------------------------------

BROKEN: tuple[Any, ...] = (None, True, "x", -1, 1.5, [], {}, [None], ["x"], 10**30)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field, and the first two entries of every list."""
    yield path
    keys = value if isinstance(value, dict) else range(min(2, len(value))) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*path, key))


def mutations(data: dict[str, Any]) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """What was done, whether that breaks structure alone, and the broken file."""
    for path in places(data):
        if not path:
            yield "root: unknown field", True, {**data, "unknown": 1}
            continue
        copied = copy.deepcopy(data)
        holder: Any = copied
        for key in path[:-1]:
            holder = holder[key]
        old = holder[path[-1]]
        for value in BROKEN:
            holder[path[-1]] = value
            yield f"{path} = {value!r}", _kind(value) != _kind(old) and value != [], copied
        del holder[path[-1]]
        yield f"{path} deleted", isinstance(holder, dict), copied
    for path in places(data):
        copied = copy.deepcopy(data)
        inner: Any = copied
        for key in path:
            inner = inner[key]
        if path and isinstance(inner, dict):
            inner["unknown"] = 1
            yield f"{path}: unknown field", True, copied


def _kind(value: object) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "number" if number else type(value).__name__


def examples(name: str, plans: dict[str, Path]) -> list[dict[str, Any]]:
    if name == "plan":
        return [json.loads(plans[f"{system}.json"].read_text()) for system in ("taccl", "monet")]
    if name == "mscclpp-plan":
        return [json.loads(plans["mscclpp.json"].read_text())]
    texts = {
        "topology": [TOPOLOGY, CLUSTER, LISTED],
        "sketch": [SKETCH],
        "collective": [BY_RANK, BY_CHUNK],
        "groups": [GROUPS],
        "sweep": [SWEEP],
        "measured": [MEASURED],
        "tuned": [TUNED],
        "tuned-table": [TUNED_TABLE],
        "measure": [MEASURE],
    }
    if name in texts:
        return [parsed(text) for text in texts[name]]
    modules = {
        "training-graph": training_graph_file, "fusion-profile": fusion_profile_file, "ddp-buckets": ddp_buckets,
        "fsdp2": fsdp2,
        "pipeline-profile": pipeline_profile_file, "compression-errors": compression_errors_file,
        "training-step": training_step_file,
    }  # fmt: skip
    return [example_of(modules[name])]


@pytest.mark.thorough("plan")
@pytest.mark.parametrize("name", READERS)
def test_a_broken_structure_is_refused_by_schema_and_reader(
    name: str, plans: dict[str, Path], tmp_path: Path
) -> None:  # fmt: skip
    """And whatever the schema refuses, the reader refuses too; what binds fields together only the reader knows."""
    schema, read, path = validator(name), READERS[name], tmp_path / "broken.json"
    for example in examples(name, plans):
        assert not faults(name, example)
        for what, structural, broken in mutations(example):
            path.write_text(json.dumps(broken))
            try:
                read(path)
                refused = ""
            except InputError as error:
                refused = str(error)
            valid = schema.is_valid(broken)
            assert refused or valid, f"{what}: the reader takes what the schema refuses"
            if structural and not (name == "measure" and "('grid', " in what):  # its fields are those of the command
                assert valid == (not refused), f"{what}: the schema takes what the reader refuses: {refused}"
