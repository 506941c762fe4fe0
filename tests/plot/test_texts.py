"""The texts of pictures: the question and the gap in the title, none cut off, no two that overlap."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_texts import text_troubles
from small_plans import SYSTEMS, small_plan

from gapless.cli.main import main
from gapless.errors import InputError
from gapless.plot.pictures import draw, kinds
from gapless.plot.style import plain
from gapless.report.headline import question_of, verdict_of
from gapless.result import read_saved

LARGER = {
    "taccl": ("--topology ndv2 --nodes 1 --size 1MB", "--topology ndv2 --nodes 10 --sketch ndv2-sk-1 --size 1MB"),
    "monet": ("--graph vgg16 --batch 64 --budget 0.7x", "--graph resnet50 --batch 128 --budget 0.6x"),
    "bagpipe": (
        "--trace criteo-like --trainers 8 --batch-size 256 --lookahead 20 --batches 10",
        "--trace criteo-like --trainers 16 --batch-size 2048 --lookahead 20 --batches 30",
    ),
    "cupcake": ("--profile vgg16", "--profile resnet101 --modes compress"),
    "oktopk": (
        "--indices clustered:elements=20000,steps=2 --ranks 16 --density 0.02",
        "--indices clustered:elements=100000,steps=2 --ranks 64 --density 0.01",
    ),
    "pipeline": (
        "--profile uniform:f=10,b=12,w=8 --ranks 4 --micro-batches 12 --hop 2 --in-flight 5",
        "--profile uniform:f=10,b=12,w=8 --ranks 16 --micro-batches 64 --hop 2",
    ),
    "chai": (
        "--profile synthetic:layers=12,heads=12 --kv-saving 0.25",
        "--profile synthetic:layers=32,heads=32 --kv-saving 0.25",
    ),
}


def assert_legible(path: Path) -> None:
    """Every kind of picture of a plan has a title with its question and its verdict, and texts that can be read."""
    plan = read_saved(str(path))
    drawn = 0
    for kind in kinds():
        try:
            axes = draw(plan, kind)
        except InputError:
            continue
        title = " ".join(axes.get_title(loc="left").split())
        assert title.startswith(plain(question_of(plan.system, plan.problem), 160)[:60].rsplit(" ", 1)[0]), kind
        assert title.endswith(verdict_of(plan)), kind
        assert text_troubles(axes.figure) == [], kind
        drawn += 1
    assert drawn


@pytest.mark.thorough(but=("monet", "ranks"))
@pytest.mark.parametrize("system", SYSTEMS)
def test_texts_of_a_small_plan_are_legible(system: str, tmp_path: Path) -> None:
    assert_legible(small_plan(system, tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("system", LARGER)
def test_texts_of_larger_plans_are_legible(system: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / ("plan.npz" if system == "bagpipe" else "plan.json")
    limit = [] if system == "bagpipe" else ["--time-limit", "20"]
    assert main(["solve", system, *LARGER[system][size].split(), *limit, "-o", str(path), "--quiet"]) == 0
    assert_legible(path)


def test_hostile_names_are_shown_as_they_are(tmp_path: Path) -> None:
    path = small_plan("pipeline", tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    evil = r"$\frac{$ <b>\n &amp; " + 300 * "x"
    data["problem"]["profile"] = data["schedule"]["name"] = data["topology"]["name"] = evil
    for op in data["graph"]["ops"]:
        op["name"] = op["kind"] = evil
    path.write_text(json.dumps(data), encoding="utf-8")
    plan = read_saved(str(path))
    for kind in ("gantt", "memory", "topology"):
        axes = draw(plan, kind)
        assert text_troubles(axes.figure) == [], kind
        assert r"\$\frac{\$" in axes.get_title(loc="left")


def test_a_title_is_the_replays_where_the_claim_is_false(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_plan("pipeline", tmp_path)
    plan = read_saved(str(path))
    late = replace(plan.schedule, start_s=2 * plan.schedule.start_s, end_s=2 * plan.schedule.end_s)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["schedule"].update(start_s=late.start_s.tolist(), end_s=late.end_s.tolist())
    path.write_text(json.dumps(data), encoding="utf-8")
    assert main(["plot", str(path), "--kind", "gantt", "-o", str(tmp_path / "late.svg"), "--quiet"]) == 0
    picture = (tmp_path / "late.svg").read_text(encoding="utf-8")
    assert "optimal" not in picture
    assert "50.00 %" in picture
