"""The picture of a sweep over sizes: what stands where, in which colour, and what can't be drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapless.cli.main import main
from gapless.encodings.taccl.sweep.picture import draw_sizes
from gapless.errors import InputError


def row(size_bytes: int, plan: str | None, sketch: str | None, makespan_s: float | None) -> dict[str, Any]:
    return {
        "size_bytes": size_bytes, "plan": plan, "sketch": sketch, "makespan_s": makespan_s, "bound_s": size_bytes / 4e9,
        "algbw_bytes_per_s": makespan_s and size_bytes / makespan_s, "baseline": "ring",
    }  # fmt: skip


ROWS = [
    row(1000, "plan-1KB-few", "few", 1e-6),
    row(2000, "plan-1KB-few", "few", 2e-6),
    row(4000, "ring", None, 2e-6),
    row(8000, "plan-8KB-auto in 2 pieces", "auto", 4e-6),
    row(16_000, None, None, None),
]


def written(folder: Path, rows: list[dict[str, Any]] = ROWS, **changes: Any) -> str:
    data = {"format": "gapless.size-sweep", "version": 1, "collective": "allgather", "topology": "four", "rows": rows}
    (folder / "summary.json").write_text(json.dumps(data | changes))
    return str(folder / "summary.json")


def lines(figure: Any) -> dict[str, tuple[list[float], list[float]]]:
    (axes,) = figure.axes
    named = [line for line in axes.lines if not line.get_label().startswith("_")]
    return {line.get_label(): ([*line.get_xdata()], [*line.get_ydata()]) for line in named}


def test_sizes_stand_in_the_colour_of_what_serves_them_and_the_bound_is_dashed(tmp_path: Path) -> None:
    figure, words = draw_sizes(written(tmp_path))
    assert words == "curve of 4 sizes"
    assert lines(figure) == {
        "few": ([1000, 2000], [1.0, 1.0]),
        "baseline": ([4000], [2.0]),
        "auto": ([8000], [2.0]),
        "upper bound": ([1000, 2000, 4000, 8000, 16_000], pytest.approx([4.0] * 5)),
    }
    assert figure.axes[0].get_ylabel() == "algorithm bandwidth (GB/s)"


def test_the_time_may_be_drawn_instead(tmp_path: Path) -> None:
    figure, _ = draw_sizes(written(tmp_path), "makespan_s")
    assert lines(figure)["few"] == ([1000, 2000], [1.0, 2.0])
    assert lines(figure)["lower bound"][1] == pytest.approx([0.25, 0.5, 1.0, 2.0, 4.0])
    assert figure.axes[0].get_ylabel() == "makespan (us)"


@pytest.mark.parametrize(
    ("changes", "y", "message"),
    [
        ({}, "gap", "--y: must be one of algbw_bytes_per_s, makespan_s, got 'gap'"),
        ({"rows": ROWS[4:]}, None, "rows: must hold a size that is served, got none; sweep for longer"),
        ({"version": 2}, None, "version: must be 1, got 2"),
        ({"rows": [ROWS[0] | {"bound_s": "x"}]}, None, 'rows[0]: bound_s: must be a number >= 0, got "x"'),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, changes: dict[str, Any], y: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        draw_sizes(written(tmp_path, **changes), y)
    assert message in str(caught.value)


def test_plot_knows_the_table_by_its_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, picture = written(tmp_path), str(tmp_path / "sizes.svg")
    assert main(["plot", path, "--y", "makespan_s", "-o", picture]) == 0
    assert capsys.readouterr().out == f"{picture}: curve of 4 sizes\n"
    assert main(["plot", path, "--x", "size", "-o", picture]) == 2
    assert "--x: goes with the summary.json of a sweep's file" in capsys.readouterr().err
