"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from calls import run
from spawned import spawn

from gapless.cli.main import main

SOLVE = ["solve", "taccl", "--topology", "ndv2", "--nodes", "2", "--sketch", "ndv2-sk-1", "--size", "1MB"]


@pytest.fixture(scope="module")
def plan_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert main([*SOLVE, "-o", str(path), "--quiet"]) == 0
    return path.read_text()


@pytest.fixture
def plan(plan_text: str, tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(plan_text)
    return tmp_path / "plan.json"


def altered(plan: Path, change: Any) -> Path:
    """The plan after `change(data)`."""
    data = json.loads(plan.read_text())
    change(data)
    plan.write_text(json.dumps(data))
    return plan


def test_json_is_the_only_thing_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, xml = tmp_path / "plan.json", tmp_path / "plan.xml"
    code, out, err = run(capsys, *SOLVE, "--json", "-o", str(plan), "--xml", str(xml), "--instances", "8")
    data = json.loads(out)
    assert code == 0
    assert {"problem", "status", "objective_s", "bound_s", "gap", "solve_s", "solver", "valid", "violations"} <= set(
        data
    )
    assert {"makespan_s", "peak_bytes", "plan", "version", "ratio", "sends", "stages", "xml"} <= set(data)
    assert data["problem"] == "taccl"
    assert data["status"] in ("optimal", "feasible")
    assert data["valid"] is True
    assert data["makespan_s"] == pytest.approx(data["objective_s"])
    assert data["ratio"] == pytest.approx(data["makespan_s"] / data["bound_s"])
    within_sketch = data["bounds"][-1]
    assert within_sketch["class"] == "chunks"
    assert 1 <= data["makespan_s"] / within_sketch["bound"] <= 1.02
    assert set(data["stages"]) >= {"milp: routing", "milp: ordering", "milp: contiguity"}
    assert (data["plan"], data["xml"]) == (str(plan), str(xml))
    assert plan.exists()
    assert xml.exists()
    assert "incumbent" in err


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *SOLVE, "--quiet") == (0, "", "")


def test_saved_plan_replays_to_the_same_makespan(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    code, out, _ = run(capsys, "check", str(plan), "--json")
    assert code == 0
    assert json.loads(out)["makespan_s"] == json.loads(plan.read_text())["claim"]["objective_s"]


def test_plan_with_a_broken_time_fails_the_check_by_rule(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    def too_early(data: Any) -> None:
        last = max(range(len(data["schedule"]["start_s"])), key=lambda k: data["schedule"]["start_s"][k])
        data["schedule"]["start_s"][last] = 0.0
        data["schedule"]["end_s"][last] = 1e-3

    code, out, _ = run(capsys, "check", str(altered(plan, too_early)), "--json")
    assert code == 5
    assert "input-late" in json.loads(out)["violations"]


def test_plan_with_violations_is_not_exported(capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path) -> None:
    altered(plan, lambda data: data["schedule"]["start_s"].__setitem__(0, 5e-4))
    code, _, err = run(capsys, "export", str(plan), "--format", "taccl-ef", "-o", str(tmp_path / "out.xml"))
    assert code == 5
    assert "not exported" in err
    assert not (tmp_path / "out.xml").exists()


def test_show_tells_chunk_input_and_output_sizes(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    code, out, _ = run(capsys, "show", str(plan), "--events", "2")
    assert code == 0
    assert re.search(r"chunk +1 MB", out)
    assert re.search(r"input +1 MB", out)
    assert re.search(r"output +16 MB", out)
    assert "busiest" in out


def test_show_of_a_plan_that_names_unknown_things_says_so(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    altered(plan, lambda data: data["schedule"]["place"].__setitem__(0, 10**6))
    code, out, _ = run(capsys, "show", str(plan), "--events", "3")
    assert code == 5
    assert "unknown-id (1)" in out


def test_show_says_which_command_made_the_plan(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    out = run(capsys, "show", str(plan))[1]
    assert "made by\n  gapless solve taccl --topology ndv2 " in out


@pytest.mark.parametrize("instances", ["1", "8"])
def test_exported_xml_passes_its_own_check(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, instances: str
) -> None:
    xml = tmp_path / "out.xml"
    arguments = ["export", str(plan), "--format", "taccl-ef", "-o", str(xml), "--instances", instances]
    assert run(capsys, *arguments)[0] == 0
    code, out, _ = run(capsys, "check", str(xml), "--json")
    assert code == 0
    assert json.loads(out)["executed"] is True


def test_check_of_xml_says_what_it_found_in_one_last_line(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path
) -> None:
    xml = tmp_path / "out.xml"
    run(capsys, "export", str(plan), "--format", "taccl-ef", "-o", str(xml))
    code, out, _ = run(capsys, "check", str(xml))
    assert code == 0
    last = "allgather on 16 GPUs: valid, executed out of place with 1 and 8 messages in flight"
    assert out.splitlines() == [last]
    code, out, _ = run(capsys, "check", str(xml), "--collective", "alltoall", "--json")
    assert code == 5
    assert json.loads(out)["violations"]
    code, _, err = run(capsys, "check", str(xml), "--root", "1")
    assert code == 2
    assert "root: must be left out, allgather has none" in err


def test_a_missing_executor_attribute_is_an_error_but_for_the_original_runtime(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path
) -> None:
    xml = tmp_path / "out.xml"
    run(capsys, "export", str(plan), "--format", "taccl-ef", "-o", str(xml))
    xml.write_text(re.sub(r' (minBytes|maxBytes)="\d+"', "", xml.read_text()))
    code, out, _ = run(capsys, "check", str(xml))
    assert code == 5
    assert len(re.findall(r"^algo: .* is missing: the executor refuses the file", out, re.MULTILINE)) == 2
    assert run(capsys, "check", str(xml), "--runtime", "original")[0] == 0


def test_fusing_can_be_turned_off(capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path) -> None:
    xml = tmp_path / "out.xml"
    run(capsys, "export", str(plan), "--format", "taccl-ef", "-o", str(xml), "--no-fuse")
    assert not re.search(r'type="(rcs|rrs|rrcs)"', xml.read_text())
    assert run(capsys, "check", str(xml), "--runtime", "original")[0] == 0


def test_the_byte_range_and_the_blocks_of_an_export_can_be_set(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path
) -> None:
    xml = tmp_path / "out.xml"
    arguments = ["export", str(plan), "--format", "taccl-ef", "-o", str(xml)]
    assert run(capsys, *arguments, "--min-bytes", "1MB", "--max-bytes", "32MB")[0] == 0
    assert 'minBytes="1000000" maxBytes="32000000"' in xml.read_text()
    code, _, err = run(capsys, *arguments, "--sm-count", "2")
    assert code == 2
    assert re.search("all thread blocks must run at once on 2 multiprocessors, got [0-9]+", err)


def test_broken_xml_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path) -> None:
    xml = tmp_path / "out.xml"
    run(capsys, "export", str(plan), "--format", "taccl-ef", "-o", str(xml))
    first_receive = re.search(r'<step [^>]*type="r" [^>]*/>\n', xml.read_text())
    assert first_receive is not None
    xml.write_text(xml.read_text().replace(first_receive.group(), "", 1))
    code, out, err = run(capsys, "check", str(xml))
    assert code in (2, 5)
    assert "gpu" in out + err


@pytest.mark.parametrize(
    "what", ["topologies", "sketches", "solvers", "collectives", "compressors", "profiles", "schemas"]
)
def test_lists_name_what_is_there(capsys: pytest.CaptureFixture[str], what: str) -> None:
    code, out, _ = run(capsys, "list", what, "--json")
    assert code == 0
    known = {"topologies": "ndv2", "sketches": "dgx2-sk-2", "solvers": "highs", "collectives": "allgather",
             "compressors": "powersgd", "profiles": "bert-base", "schemas": "plan"}  # fmt: skip
    assert known[what] in {row["name"] for row in json.loads(out)}
    assert run(capsys, "list", what)[0] == 0


def test_compressors_are_listed_with_their_class_of_error(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row["error"] for row in json.loads(run(capsys, "list", "compressors", "--json")[1])}
    assert (rows["none"], rows["fp16"], rows["qsgd"]) == ("exact", "rounded", "unbiased")
    assert (rows["powersgd"], rows["signsgd"]) == ("feedback", "unknown")


def test_generated_topologies_are_listed_with_an_example_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "topologies", "--json")[1])}
    assert {"dgx-h100", "ring", "fat-tree"} <= set(rows)
    assert "--topology-file" in run(capsys, "list", "topologies")[1]
    code, out, _ = run(
        capsys, "solve", "taccl", "--topology", rows["ring"]["example"], "--size", "1MB", "--chunks", "1", "--json"
    )
    assert code == 0
    assert json.loads(out)["makespan_s"] == pytest.approx(4 * 46.7e-6)


BAD_INPUT = [
    (["solve", "taccl", "--topology", "ndv3", "--size", "1MB"], r"got 'ndv3'; did you mean 'ndv2'\?"),
    (["solve", "taccl", "--topology", "ring:8", "--nodes", "2", "--size", "1MB"], r"its name says its size, got 2"),
    (["solve", "taccl", "--topology", "mesh:4x", "--size", "1MB"], r"shape: must be sizes of dimensions such as 4x4x4"),
    (["solve", "taccl", "--size", "1MB"], r"give --topology NAME"),
    (["solve", "taccl", "--topology", "ndv2", "--nodes", "2"], r"--size: must be given"),
    ([*SOLVE[:-1], "1XB"], r"--size: must be a number and a unit such as 1MB"),
    ([*SOLVE[:-1], "0"], r"--size: must be at least 1 byte and at most 1PB"),
    ([*SOLVE, "--time-limit", "0"], r"--time-limit: must be a number > 0 and <= 1e[+]06, got '0'"),
    ([*SOLVE, "--gap", "-1"], r"--gap: must be a number >= 0"),
    ([*SOLVE, "--threads", "x"], r"--threads: must be a whole number"),
    ([*SOLVE, "--nodes", "0"], r"--nodes: must be a whole number in 1.."),
    (
        [*SOLVE, "--solver", "gurobi"],
        r"solver must be one of highs, .*, got 'gurobi'; one of your own is .* pulp:GUROBI$",
    ),
    ([*SOLVE, "--collective", "allgater"], r"collective: must be one of allgather, .*, got 'allgater'"),
    ([*SOLVE, "--sketch-file", "x.json"], r"give --sketch or --sketch-file, not both"),
    ([*SOLVE, "--write-model", "model.txt"], r"must end in .lp or .mps"),
    ([*SOLVE, "-o", "/nonexistent/plan.json"], r"cannot write /nonexistent/plan.json: there is no folder"),
    ([*SOLVE, "--xml", "/nonexistent/plan.xml"], r"cannot write /nonexistent/plan.xml: there is no folder"),
    ([*SOLVE, "-o", "/"], r"cannot write /: it is a folder"),
    (["solve", "taccl", "--topology-file", "missing.json", "--size", "1MB"], r"cannot read missing.json"),
    (["check", "missing.json"], r"cannot read missing.json: No such file or directory"),
    (["show", "missing.json"], r"cannot read missing.json"),
    (["list", "plans"], r"invalid choice: 'plans'"),
    (["solve"], r"the following arguments are required: system"),
    ([], r"the following arguments are required: command"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=[message[:30] for _, message in BAD_INPUT])
def test_bad_input_gets_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments, *(["--quiet"] if arguments[:2] == ["solve", "taccl"] else []))
    assert code == 2
    assert out == ""
    assert re.search(message, err), err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("graph"), r"field 'graph' is missing"),
        (lambda data: data.update(version=2), r"version: must be 1, got 2"),
        (lambda data: data.update(extra=1), r"field 'extra' is unknown"),
        (lambda data: data["schedule"].update(kind=[0]), r"schedule: column .* must have 1 rows"),
        (lambda data: data["schedule"]["start_s"].__setitem__(0, "now"), r"start_s: must be a list of numbers"),
        (lambda data: data["graph"]["size_bytes"].__setitem__(0, -5), r"size_bytes must be >= 0, got -5"),
        (lambda data: data["topology"]["links"]["source"].__setitem__(0, 99), r"both ends must be in 0..15"),
    ],
)
def test_damaged_plan_is_refused_with_file_and_field(
    capsys: pytest.CaptureFixture[str], plan: Path, change: Any, message: str
) -> None:
    code, _, err = run(capsys, "check", str(altered(plan, change)))
    assert code == 2
    assert str(plan) in err
    assert re.search(message, err), err


@pytest.mark.thorough
def test_model_is_written_for_solver_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("model.lp", "model.mps"):
        code, _, err = run(capsys, *SOLVE, "--write-model", str(tmp_path / name))
        assert code == 0
        assert re.search(rf"{name}: taccl_routing: [\d,]+ columns \([\d,]+ integer\), [\d,]+ rows", err)
    assert "is_sent_c0_r0_r1" in (tmp_path / "model.lp").read_text()


def test_budget_of_one_second_gives_a_replayed_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["solve", "taccl", "--topology", "dgx2", "--nodes", "2", "--sketch", "dgx2-sk-1", "--time-limit", "1"]
    code, out, _ = run(capsys, *arguments, "--json", "--quiet", "-o", str(tmp_path / "plan.json"))
    assert code == 0
    assert json.loads(out)["valid"] is True


def interrupted(folder: Path, after: str) -> tuple[int, str, list[Path]]:
    """Exit code, stderr and files left after Ctrl-C, sent once stderr holds `after`."""
    arguments = ["--topology", "dgx2", "--nodes", "2", "--sketch", "dgx2-sk-1", "--size", "1GB", "--gap", "0"]
    process = spawn("solve", "taccl", *arguments, "-o", str(folder / "plan.json"))
    assert process.stderr is not None
    lines = []
    while not any(after in line for line in lines):
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=600)
    return process.returncode, "".join(lines) + rest, sorted(folder.iterdir())


@pytest.mark.thorough
def test_interrupt_writes_the_best_plan_so_far_and_no_half_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, err, files = interrupted(tmp_path, after="ordering")
    assert code == 0, err
    assert "stopping with the best plan so far" in err
    assert "Traceback" not in err
    assert files == [tmp_path / "plan.json"]
    assert run(capsys, "check", str(files[0]))[0] == 0


@pytest.mark.thorough
def test_second_interrupt_leaves_at_once_and_writes_nothing(tmp_path: Path) -> None:
    arguments = ["--topology", "dgx2", "--nodes", "2", "--sketch", "dgx2-sk-1", "--size", "1GB", "--gap", "0"]
    process = spawn("solve", "taccl", *arguments, "-o", str(tmp_path / "plan.json"))
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert any("Ctrl-C again" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "interrupted; no half-written file is left" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_module_and_help_work(capsys: pytest.CaptureFixture[str]) -> None:
    process = spawn("--version")
    assert process.communicate(timeout=600)[0].startswith("gapless 0.")
    for arguments in (["--help"], ["solve", "--help"], ["solve", "taccl", "--help"], ["check", "--help"]):
        assert run(capsys, *arguments)[0] == 0
