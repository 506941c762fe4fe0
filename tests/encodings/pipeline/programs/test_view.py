"""The pipeline diagram and what `show` prints: every op of every rank, nothing where a plan doesn't say."""

from __future__ import annotations

from pathlib import Path

import pytest

import gapless
from gapless.io.plan import SavedPlan
from gapless.result import read_saved


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> SavedPlan:
    path = tmp_path_factory.mktemp("pipeline") / "plan.json"
    asked = {"ranks": 3, "micro_batches": 4, "hop": 2, "placement": "v", "method": "zb-v"}
    gapless.pipeline.solve("uniform:f=10,b=12,w=8", **asked).save(path)
    return read_saved(path)


def test_every_op_has_a_bar_and_every_message_a_line(plan: SavedPlan) -> None:
    from matplotlib.collections import LineCollection

    from gapless.plot.pictures import draw, pictures_of

    assert pictures_of(plan)[0] == "pipeline"
    ax = draw(plan, "pipeline")
    assert len(ax.patches) == int((plan.schedule.op >= 0).sum()) == 3 * 2 * 3 * 4
    lines = next(found for found in ax.collections if isinstance(found, LineCollection))
    assert len(lines.get_segments()) == int(plan.schedule.is_transfer.sum()) == 2 * 4 * 4
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]


def test_show_says_the_layers_of_each_rank_and_the_schedules_beside(
    plan: SavedPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gapless.checker import check
    from gapless.encodings.pipeline.programs.view import render

    text = render(plan, check(plan.schedule))
    assert [line.split()[:3] for line in text.splitlines()[1:4]] == [
        ["0", "0,", "5"],
        ["1", "1,", "4"],
        ["2", "2,", "3"],
    ]
    assert "zb-v" in text
