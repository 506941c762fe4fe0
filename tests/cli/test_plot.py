"""`gapless plot`: what it writes, and how it ends."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from small_plans import SYSTEMS, small_plan

from gapless.checker import inspection
from gapless.cli.commands import plot as drawing
from gapless.cli.main import main
from gapless.plot.pictures import draw_beside
from gapless.result import read_saved


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_plan("taccl", tmp_path_factory.mktemp("plot"))


@pytest.mark.thorough(but=("cupcake", "monet"))
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_plan_of_every_system_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path, system: str) -> None:
    path = small_plan(system, tmp_path)
    assert main(["plot", str(path), "-o", str(tmp_path / "out.svg")]) == 0
    kind = {"monet": "memory", "pipeline": "pipeline", "cache": "front", "chai": "front", "ranks": "modes"}.get(
        system, "gantt"
    )
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'out.svg'}: {kind} of ")


@pytest.mark.thorough(but=("svg",))
@pytest.mark.parametrize(("ending", "opening"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF-")])
def test_the_ending_names_the_kind_of_file(plan: Path, tmp_path: Path, ending: str, opening: bytes) -> None:
    path = tmp_path / f"out.{ending}"
    assert main(["plot", str(plan), "--kind", "topology", "-o", str(path), "--quiet"]) == 0
    assert path.read_bytes().startswith(opening)
    before = path.read_bytes()
    assert main(["plot", str(plan), "--kind", "topology", "-o", str(path), "--quiet"]) == 0
    assert path.read_bytes() == before


def test_table_of_a_sweep_becomes_a_curve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "summary.json"
    rows = [{"memory_ratio": ratio, "overhead": 0.1, "overhead_bound": 0.05} for ratio in (0.5, 0.6)]
    table.write_text(json.dumps(rows))
    assert main(["plot", str(table), "-o", str(tmp_path / "curve.pdf")]) == 0
    assert "trade-off curve of 2 rows" in capsys.readouterr().out
    table.write_text(json.dumps(rows[:1]))
    assert main(["plot", str(table), "-o", str(tmp_path / "curve.pdf")]) == 2
    assert "needs two rows with an overhead, got 1; draw the plan instead" in capsys.readouterr().err
    assert main(["plot", str(table), "--kind", "gantt", "-o", str(tmp_path / "curve.pdf")]) == 2


@pytest.mark.thorough
def test_a_picture_of_a_large_plan_does_not_wait_for_the_replay(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "_MOST_REPLAYED", 1)
    monkeypatch.setattr(inspection, "judged", None)
    assert main(["plot", str(plan), "-o", str(tmp_path / "out.svg")]) == 0
    assert "not replayed, `gapless check` does that" in capsys.readouterr().out


def test_two_plans_stand_on_one_axis_of_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    question = ["--profile", "gpt-2.5b", "--ranks", "8", "--bandwidth", "10GB/s"]
    for method in ("fsdp2", "one-by-one"):
        assert main(["solve", "fsdp", *question, "--method", method, "-o", f"{tmp_path / method}.json", "--quiet"]) == 0
    plans = [read_saved(tmp_path / f"{method}.json") for method in ("one-by-one", "fsdp2")]
    figure = draw_beside(plans, [inspection.inspected(plan.schedule) for plan in plans])
    ends = {axes.get_xlim()[1] for axes in figure.axes}
    assert len(ends) == 1
    assert [axes.get_title(loc="left").split(":")[0] for axes in figure.axes] == ["one-by-one", "fsdp2"]
    files = [str(tmp_path / "fsdp2.json"), "--beside", str(tmp_path / "one-by-one.json"), "-o", str(tmp_path / "a.svg")]
    assert main(["plot", *files]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'a.svg'}: 2 plans, ")
    assert main(["plot", *files, "--kind", "topology"]) == 2
    assert "plans stand beside each other as gantt or memory" in capsys.readouterr().err


def test_plan_with_violations_is_drawn_and_ends_with_5(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path
) -> None:
    data = json.loads(plan.read_text())
    data["schedule"]["start_s"][0] = 5e-4
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(data))
    assert main(["plot", str(broken), "-o", str(tmp_path / "out.png"), "--quiet"]) == 5
    assert "does not replay clean" in capsys.readouterr().err
    assert (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "gant", "-o", "x.png"], "--kind: must be one of auto, gantt, resources, memory, topology, "),
        (["--kind", "gant", "-o", "x.png"], "did you mean 'gantt'?"),
        (["-o", "x.gif"], "must end in .pdf, .png or .svg, got 'x.gif'"),
        (["-o", "nowhere/x.png"], "there is no folder nowhere"),
        (["--kind", "tradeoff", "-o", "x.png"], "takes the summary.json of a sweep, got a plan"),
    ],
)
def test_bad_options_get_one_line(
    capsys: pytest.CaptureFixture[str], plan: Path, arguments: list[str], message: str
) -> None:
    assert main(["plot", str(plan), *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_missing_file_gets_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plot", str(tmp_path / "none.json"), "-o", str(tmp_path / "x.png")]) == 2
    assert capsys.readouterr().err.startswith("gapless: error: cannot read ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["plot", "report"])
def test_without_matplotlib_one_line_says_how_to_install(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else real(name))
    path = tmp_path / ("out.png" if command == "plot" else "out.html")
    assert main([command, str(plan), "-o", str(path)]) == 2
    expected = (
        "gapless: error: plotting needs matplotlib, which is not installed; pip install '.[plot]' in a checkout\n"
    )
    assert capsys.readouterr().err == expected
    assert not path.exists()
