"""Every reader of files: a file that it takes, how to change it at random, and what is then done with its content."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from changed_files import mutate
from damaged_texts import damaged
from fusion_instances import known_instance
from mutate import mutated_bytes, mutated_jsons

from gapless.cli.main import main
from gapless.encodings import taccl
from gapless.encodings.taccl.milp.routers import routing_model
from gapless.errors import InputError
from gapless.io.ddp_buckets import DdpBuckets, ddp_buckets_text, read_ddp_buckets
from gapless.plot.sweep_curves import draw_sweep
from gapless.profiles.gradients.profile_file import fusion_profile_text
from gapless.profiles.traces.files import read_trace
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph_file import read_training_graph
from gapless.sweeps import Row, read_instances
from gapless.sweeps.summary import read_summary, write_summary
from gapless.topologies.files import load_topology
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate

Changed = Callable[[bytes, int, int], Iterator[bytes]]


@dataclass(frozen=True)
class ReadCase:
    """One format.

    `name`: of the file. `make(path)` writes one that is taken. `changed(content, seed, count)`: so many changed ones.
    `use(path)` reads the file and does with it what a command would; it may raise `InputError` and nothing else.
    """

    name: str
    make: Callable[[Path], None]
    changed: Changed
    use: Callable[[Path], None]


def changed_jsons(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of the object in the file."""
    return mutated_jsons(content.decode(), seed, count)


def changed_bytes(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of bytes, inside the gzip if it is one, or of the gzip."""
    chance, packed = Random(seed), content[:2] == b"\x1f\x8b"
    for _ in range(count):
        if packed and chance.random() < 0.7:
            yield gzip.compress(mutated_bytes(gzip.decompress(content), chance), compresslevel=1)
        else:
            yield mutated_bytes(content, chance)


def changed_headers(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of an array's bytes, most of them in its header."""
    chance, head = Random(seed), 128
    for _ in range(count):
        if chance.random() < 0.3:
            shape = chance.choice(
                ["(10**9, 2)", "(2, 1000000000)", "(-1, 2)", "(0, 2)", "(2,)", "()", "(True, 2)", "x"]
            )
            kind = chance.choice(["'<i8'", "'>u2'", "'|O'", "'<f8'", "'<U4'", "'|V8'", "[('a', '<i4')]", "'x'", "None"])
            order = chance.choice(["True", "False", "3"])
            text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(head - 11) + "\n"
            yield content[:8] + len(text).to_bytes(2, "little") + text.encode() + content[head:]
        else:
            yield (
                mutated_bytes(content[:head], chance) + content[head:]
                if chance.random() < 0.7
                else mutated_bytes(content, chance)
            )


def changed_texts(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Damage to XML."""
    for number in range(count):
        text = damaged(content.decode(), Random(seed * 1_000_000 + number))
        yield text.encode("utf-8", "surrogatepass")


# -- what is done with a file ------------------------------------------------------------------------------------------


def command(*arguments: str) -> int:
    """Run a command with its output thrown away; refusals must be one line on stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
    assert code in (0, 2, 3, 4, 5), err.getvalue()
    if code == 2:
        assert len(err.getvalue().splitlines()) == 1, err.getvalue()
        raise InputError(err.getvalue().strip())
    return code


def use_plan(path: Path) -> None:
    """Check, show, export."""
    command("check", str(path), "--json")
    command("show", str(path), "--events", "30")
    for form in ("taccl-ef", "mscclpp", "ddp-buckets"):
        target = path.with_name("exported")
        try:
            code = command("export", str(path), "--format", form, "-o", str(target))
        except InputError:
            code = 2
        assert target.exists() == (code == 0)
        target.unlink(missing_ok=True)


def use_topology(path: Path) -> None:
    """One node and two, and what every problem asks of them."""
    for nodes in (1, 2):
        topology = load_topology(None, nodes, path)
        taccl.Chunked.of(topology, "allgather", 1000, None)


def use_sketch(path: Path) -> None:
    """The logical topology and its model."""
    sketch = taccl.read_sketch(path)
    topology = FOUR.cluster(sketch.node_count or 2)
    routing_model(taccl.Chunked.of(topology, "allgather", sketch.input_bytes or 1000, sketch))


def use_graph(path: Path) -> None:
    """What a step takes; now and then a plan too."""
    graph = read_training_graph(path)
    peak_without_saving_bytes(graph)
    if Random(path.stat().st_size).random() < 0.05:
        target = path.with_name("planned.json")
        arguments = ("--graph", str(path), "--budget", "1x", "--time-limit", "1", "--threads", "1")
        command("solve", "monet", *arguments, "-o", str(target), "--json")
        target.unlink(missing_ok=True)


def use_profile(path: Path) -> None:
    """The best fusion, and advice."""
    target = path.with_name("planned.json")
    command("solve", "cupcake", "--profile", str(path), "-o", str(target), "--json")
    target.unlink(missing_ok=True)
    if Random(path.stat().st_size).random() < 0.05:
        command("advise", "compression", "--profile", str(path), "--ranks", "8", "--bandwidth", "10Gbps", "--json")


def use_trace(path: Path) -> None:
    """A few batches."""
    columns = ("user", "item") if ".csv" in path.name else ()
    for batch in read_trace(path, columns).batches(7, most=20):
        assert batch.dtype == np.int64


def use_sweep(path: Path) -> None:
    """All but the solving."""
    command("sweep", "file", str(path), "-o", str(path.with_name("results")), "--dry-run", "--json")


def make_summary(path: Path) -> None:
    """The table of a sweep of two fusions."""
    path.with_name("sweep.json").write_text(json.dumps({**SWEEP, "grid": [SWEEP["grid"][1]]}))
    instances = read_instances(path.with_name("sweep.json"))
    kinds: tuple[dict[str, Any], ...] = (
        {
            "status": "optimal",
            "stop_reason": "finished",
            "objective_s": 0.1,
            "bound_s": 0.1,
            "gap": 0.0,
            "makespan_s": 0.1,
        },
        {"status": "failed", "error": "broken"},
    )
    rows = [
        Row(each.hash, each.system, dict(each.values), each.swept, **kind)
        for each, kind in zip(instances, kinds, strict=True)
    ]
    write_summary(path.parent, rows)


def use_summary(path: Path) -> None:
    """A picture, where they can be drawn; now and then a file too."""
    rows = read_summary(path)
    if find_spec("matplotlib") is not None:
        draw_sweep(rows)
        if Random(path.stat().st_size).random() < 0.05:
            target = path.with_name("curves.svg")
            command("plot", str(path), "-o", str(target))
            target.unlink()


# -- files -------------------------------------------------------------------------------------------------------------


FOUR = NodeTemplate(
    "four", 4, switches=(SwitchTemplate((0, 1, 2, 3), 1e-6, 1e-11),),
    nics=(NicTemplate((0, 1), 2e-6, 1e-10), NicTemplate((2, 3), 2e-6, 1e-10)),
)  # fmt: skip
"""The machine that the sketch is for."""


def void(_: object) -> None:
    """Throws a value away, for a lambda that returns none."""


def json_maker(data: Any) -> Callable[[Path], None]:
    """Writes an object."""
    return lambda path: void(path.write_text(json.dumps(data)))


def solved(*arguments: str) -> Callable[[Path], None]:
    """Writes the plan of a solve."""

    def make(path: Path) -> None:
        assert command("solve", *arguments, "-o", str(path), "--quiet") == 0

    return make


def arrays_case(name: str) -> ReadCase:
    """A trace in arrays."""
    ids = np.random.default_rng(1).integers(0, 50, (60, 3))

    def make(path: Path) -> None:
        if name.endswith(".npy"):
            np.save(path, ids.astype(np.int32))
        else:
            np.savez_compressed(path, ids=ids)

    return ReadCase(name, make, changed_headers if name.endswith(".npy") else changed_bytes, use_trace)


def csv_case(name: str) -> ReadCase:
    """A trace in text."""
    text = "user,item,label\n" + "".join(f'{k % 7},"item{k % 5}",{k}\n' for k in range(60))

    def make(path: Path) -> None:
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())

    return ReadCase(name, make, changed_bytes, use_trace)


def make_run(path: Path) -> None:
    """A run of bagpipe."""
    sizes = ("--trainers", "3", "--batch-size", "24", "--lookahead", "2", "--batches", "6", "--examples", "200")
    solved("bagpipe", "--trace", "zipf", "--table-rows", "40,300,5", *sizes)(path)


def changed_runs(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Changes of arrays, of the JSON text, and of bytes."""

    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.npz", Path(folder) / "target.npz"
        source.write_bytes(content)
        for _ in range(count):
            mutate(source, target, chance)
            yield target.read_bytes()


def make_step(path: Path) -> None:
    """A training step."""
    graph = path.with_name("graph.json")
    graph.write_text(json.dumps(GRAPH))
    solved("monet", "--graph", str(graph), "--budget", "1x", "--time-limit", "5")(path)


def make_fusion(path: Path) -> None:
    """A fusion of seven gradients."""
    profile = path.with_name("profile.json")
    profile.write_text(fusion_profile_text(known_instance()))
    solved("cupcake", "--profile", str(profile))(path)


def make_buckets(path: Path) -> None:
    """Buckets of three gradients."""
    path.write_text(ddp_buckets_text(DdpBuckets("tiny", ("c", "b", "a"), (60, 20, 144), ((0, 1), (2, 2)))))


def make_mscclpp(path: Path) -> None:
    """A small ALLREDUCE as an MSCCL++ plan."""
    plan = path.with_name("plan.json")
    solved("taccl", "--topology", "ring:3", "--collective", "allreduce", "--size", "1KB")(plan)
    assert command("export", str(plan), "--format", "mscclpp", "--placement", "in-place", "-o", str(path)) == 0


def make_xml(path: Path) -> None:
    """A small ALLGATHER."""
    solved("taccl", "--topology", "ring:3", "--size", "1KB", "--xml", str(path))(path.with_name("plan.json"))


SWEEP: dict[str, Any] = {
    "format": "gapless.sweep", "version": 1, "grid": [
        {"system": "monet", "graph": "vgg16", "batch": [2, 4], "budget": ["0.6x", "1GB"], "gap": 0.05, "seed": 3},
        {"system": "cupcake", "profile": ["resnet50", "vgg16"], "method": "auto", "time_limit": 5},
        {"system": "bagpipe", "trace": "zipf", "table_rows": "40,300", "exponent": 1.5, "trainers": 2, "batch_size": 8},
    ],
}  # fmt: skip


def sweep_toml(path: Path) -> None:
    """The same in TOML."""
    lines = ['format = "gapless.sweep"', "version = 1"]
    for grid in SWEEP["grid"]:
        lines += ["", "[[grid]]", *(f"{name} = {json.dumps(value)}" for name, value in grid.items())]
    path.write_text("\n".join(lines) + "\n")


OWN: dict[str, Any] = {
    "format": "gapless.topology", "version": 1, "name": "four", "ranks_per_node": 4, "source": "made up",
    "links": [
        {"from": 0, "to": 1, "alpha_us": 0.7, "beta_us_per_mb": 46, "both_ways": True, "resources": ["bus"]},
        {"from": 2, "to": 3, "alpha_us": 0.7, "beta_us_per_mb": 46, "both_ways": True},
        {"from": 1, "to": 2, "alpha_us": 0, "beta_us_per_mb": 46.5, "both_ways": True},
    ],
    "switches": [{"ranks": [0, 1, 2, 3], "alpha_us": 0.7, "beta_us_per_mb": 8}],
    "nics": [
        {"ranks": [0, 1], "alpha_us": 2, "beta_us_per_mb": 100},
        {"ranks": [2, 3], "alpha_us": 2, "beta_us_per_mb": 9},
    ],
    "fabric": {"rails": True, "nodes_per_leaf": 1, "uplinks_per_leaf": 2, "alpha_us": 0.3, "beta_us_per_mb": 40},
}  # fmt: skip
TACCL: dict[str, Any] = {
    "name": "mine_1KB", "gpus_per_node": 2, "alpha": 30, "links": [[0, 1], [2, 0]], "betas": [[0, 4], [8, 0]],
    "invbws": [[0, 34], [38, 0]], "nics_per_node": 1, "remote_invbw": 270, "remote_alpha": 260, "remote_beta": 10,
}  # fmt: skip
KNOWN: dict[str, Any] = {
    "name": "NDv2_1MB", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3, "node_betas_list": [23, 46],
    "node_invbws_list": [23, 46], "remote_invbw": 107, "remote_alpha": 2.6, "remote_beta": 105,
}  # fmt: skip
SKETCH: dict[str, Any] = {
    "nnodes": 2,
    "intranode_sketch": {
        "strategy": "switch", "switches": [[0, 1, 2, 3]], "switch_hyperedge_strategy": ["uc-min"],
    },
    "internode_sketch": {
        "strategy": "relay", "internode_conn": {"1": [0], "3": [2]}, "beta_split": {"1": 1, "3": 1},
        "gpus_to_sender_rev_map": {"1": [0, 1], "3": [2, 3]}, "enforce_ordering": True,
    },
    "symmetry_offsets": [[4, 8]],
    "hyperparameters": {"input_chunkup": 1, "input_size": "1MB"},
}  # fmt: skip
WAY: dict[str, Any] = {"duration_s": 0.001, "workspace_bytes": 64, "name": "gemm", "power_w": 200.0}
GRAPH: dict[str, Any] = {
    "format": "gapless.training-graph", "version": 1, "name": "tiny", "batch": 2, "fixed_bytes": 4096,
    "source": "made up",
    "forward": [
        {"name": "conv", "op": "conv", "output_bytes": 1024, "inputs": [], "ways": [WAY, {**WAY, "duration_s": 0.002}]},
        {
            "name": "relu", "op": "relu_", "output_bytes": 1024, "inputs": [0], "ways": [WAY], "again": [WAY],
            "overwrites": 0, "in_place": [{"duration_s": 0.001, "workspace_bytes": -1024, "power_w": 1}],
        },
        {"name": "bits", "op": "bits", "output_bytes": 32, "inputs": [1], "ways": [WAY], "creator": 1},
        {"name": "loss", "op": "loss", "output_bytes": 4, "inputs": [1], "ways": [{"duration_s": 0, "power_w": 0}]},
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


def _node(number: int, kind: str, op: str, args: list[list[int]], **fields: Any) -> dict[str, Any]:
    ways = {"workspace_mib": [0.0] * len(args), "compute_ms": [0.011] * len(args)}
    ways |= {name: fields.pop(name) for name in tuple(ways) if name in fields}
    every = {f"{prefix}{name}": values for prefix in ("", "recompute_", "inplace_") for name, values in ways.items()}
    base = {"id": number, "kind": kind, "op": op, "args": args, "mem_bytes": 1000, "fixed_mem_bytes": 1500}
    return {**base, **every, **fields}


MEASURED: dict[str, Any] = {
    "model": "small", "batch": 2, "loss": 3, "num_fwd_with_intermediates": 3, "conv_list": [0, 5],
    "select_conv_algo": True, "do_inplace": True, "inplace_of": {"1": 0},
    "nodes": [
        _node(0, "fwd", "conv", [[]], compute_ms=[1.0, -1000, 0.5], workspace_mib=[0.0, 0.0, 0.0005]),
        _node(1, "fwd", "relu", [[0]], inplace_workspace_mib=[-0.001], recompute_compute_ms=[0.02]),
        _node(2, "int", "mask", [[1]], parent=1, mem_bytes=10),
        _node(3, "loss", "loss", [[1]]),
        _node(4, "bwd", "relu_ip", [[0, 3], [2, 3]], fwd_id=1, compute_ms=[1.0, 2.0], workspace_mib=[0.0, 1.0]),
        _node(5, "bwd", "conv_param", [[4]], fwd_id=0, fixed_mem_bytes=3000, compute_ms=[1.0], workspace_mib=[0.0]),
    ],
}  # fmt: skip

CASES: dict[str, ReadCase] = {
    "topology": ReadCase("own.json", json_maker(OWN), changed_jsons, use_topology),
    "taccl-topology": ReadCase("custom.json", json_maker(TACCL), changed_jsons, use_topology),
    "taccl-profile": ReadCase("known.json", json_maker(KNOWN), changed_jsons, use_topology),
    "sketch": ReadCase("sketch.json", json_maker(SKETCH), changed_jsons, use_sketch),
    "taccl-ef": ReadCase("collective.xml", make_xml, changed_texts, lambda path: void(command("check", str(path)))),
    "mscclpp": ReadCase("mscclpp.json", make_mscclpp, changed_jsons, lambda path: void(command("check", str(path)))),
    "training-graph": ReadCase("graph.json", json_maker(GRAPH), changed_jsons, use_graph),
    "measured-graph": ReadCase("measured.json", json_maker(MEASURED), changed_jsons, use_graph),
    "fusion-profile": ReadCase(
        "profile.json",
        lambda path: void(path.write_text(fusion_profile_text(known_instance()))),
        changed_jsons,
        use_profile,
    ),
    "trace-npy": arrays_case("trace.npy"),
    "trace-npz": arrays_case("trace.npz"),
    "trace-csv": csv_case("trace.csv"),
    "trace-csv-gz": csv_case("trace.csv.gz"),
    "plan-taccl": ReadCase(
        "plan.json", solved("taccl", "--topology", "ring:3", "--size", "1KB"), changed_jsons, use_plan
    ),
    "plan-monet": ReadCase("plan.json", make_step, changed_jsons, use_plan),
    "plan-cupcake": ReadCase("plan.json", make_fusion, changed_jsons, use_plan),
    "plan-bagpipe": ReadCase("run.npz", make_run, changed_runs, use_plan),
    "sweep-json": ReadCase("sweep.json", json_maker(SWEEP), changed_jsons, use_sweep),
    "sweep-toml": ReadCase("sweep.toml", sweep_toml, changed_bytes, use_sweep),
    "sweep-summary": ReadCase("summary.json", make_summary, changed_jsons, use_summary),
    "ddp-buckets": ReadCase("buckets.json", make_buckets, changed_jsons, lambda path: void(read_ddp_buckets(path))),
}


def refusals(name: str, folder: Path, seed: int, count: int, limit_s: float | None = None) -> list[str]:
    """What is said of so many changed files, nothing of one that is taken.

    Each refusal is one line, no other exception gets out, and nothing is left in the folder but the file itself; with
    a limit, a file takes at most so many seconds of processor time.
    """
    case = CASES[name]
    (folder / "made").mkdir()
    (folder / "changed").mkdir()
    source, target = folder / "made" / case.name, folder / "changed" / case.name
    case.make(source)
    case.use(source)
    found = []
    for number, content in enumerate(case.changed(source.read_bytes(), seed, count)):
        target.write_bytes(content)
        start_s, said = time.process_time(), ""
        try:
            case.use(target)
        except InputError as error:
            said = str(error)
        took_s = time.process_time() - start_s
        assert len(said.splitlines()) <= 1, (number, said)
        assert list(target.parent.iterdir()) == [target], number
        assert limit_s is None or took_s <= limit_s, (number, took_s)
        found.append(said)
    return found
