"""Every reader of files: a file that it takes, how to change it at random, and what is then done with its content."""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from changed_contents import Changed, changed_bytes, changed_headers, changed_jsons, changed_runs, changed_texts
from file_samples import FOUR, GRAPH, KNOWN, MEASURED, OWN, SKETCH, SWEEP, TACCL
from fusion_instances import known_instance

from gapless.cli.main import main
from gapless.encodings import taccl
from gapless.encodings.taccl.milp.routers import routing_model
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets, ddp_buckets_text, read_ddp_buckets
from gapless.plot.sweep_curves import draw_sweep
from gapless.profiles.gradients.profile_file import fusion_profile_text
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.files import read_trace
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph_file import read_training_graph
from gapless.sweeps import Row, read_instances
from gapless.sweeps.summary import read_summary, write_summary
from gapless.topologies.files import load_topology


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
        assert (batch.values if isinstance(batch, Bags) else batch).dtype == np.int64


def use_sweep(path: Path) -> None:
    """All but the solving."""
    command("sweep", "file", str(path), "-o", str(path.with_name("results")), "--dry-run", "--json")


def make_summary(path: Path) -> None:
    """The table of a sweep of three fusions, of which one has failed."""
    grid = {**SWEEP["grid"][1], "profile": ["resnet50", "vgg16", "gpt2"]}
    path.with_name("sweep.json").write_text(json.dumps({**SWEEP, "grid": [grid]}))
    instances = read_instances(path.with_name("sweep.json"))
    solved = {
        "status": "optimal",
        "stop_reason": "finished",
        "objective_s": 0.1,
        "bound_s": 0.1,
        "gap": 0.0,
        "makespan_s": 0.1,
    }
    kinds: tuple[dict[str, Any], ...] = (solved, solved, {"status": "failed", "error": "broken"})
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


def sweep_toml(path: Path) -> None:
    """The same in TOML."""
    lines = ['format = "gapless.sweep"', "version = 1"]
    for grid in SWEEP["grid"]:
        lines += ["", "[[grid]]", *(f"{name} = {json.dumps(value)}" for name, value in grid.items())]
    path.write_text("\n".join(lines) + "\n")


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
