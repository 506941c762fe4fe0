"""Curves of sweeps: what stands on which axis, in which curve, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.plot.sweep_curves import _numbers, draw_sweep, plot_sweep
from gapless.sweeps import Row


def row(system: str = "monet", swept: tuple[str, ...] | None = None, cost_s: float | None = 1.0, **fields: Any) -> Row:
    """An instance with these fields, all of them swept, whose bound is a tenth below its cost."""
    bound_s = None if cost_s is None else 0.9 * cost_s
    names = tuple(fields) if swept is None else swept
    return Row("0", system, fields, names, "feasible", makespan_s=cost_s, bound_s=bound_s, details={"overhead": 0.5})


def lines(ax: Any) -> dict[str, tuple[list[float], list[float]]]:
    """The curves with a name."""
    return {
        line.get_label(): ([*line.get_xdata()], [*line.get_ydata()])
        for line in ax.lines
        if not line.get_label().startswith("_")
    }


def test_a_curve_for_each_combination_of_the_other_fields_and_the_bound_dashed() -> None:
    rows = [row(batch=batch, budget=f"{ratio}x", cost_s=batch * ratio) for batch in (1, 2) for ratio in (0.5, 0.75, 1)]
    ax = plot_sweep(rows)
    found = lines(ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("budget", "makespan (s)")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.5x", "0.75x", "1x"]
    assert found["batch 2"] == ([0.5, 0.75, 1.0], [1.0, 1.5, 2.0])
    assert set(found) == {"batch 1", "batch 2", "lower bound"}
    dashed = [line for line in ax.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert [[*line.get_ydata()] for line in dashed] == [
        pytest.approx([0.45, 0.675, 0.9]),
        pytest.approx([0.9, 1.35, 1.8]),
    ]


def test_sizes_far_apart_stand_on_logarithmic_axes() -> None:
    ax = plot_sweep(
        [row("taccl", size=size, cost_s=its) for size, its in (("1KB", 1e-6), ("1MB", 3e-5), ("1GB", 0.03))]
    )
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert lines(ax)["plan"][0] == [1e3, 1e6, 1e9]


def test_names_are_points_that_no_line_joins() -> None:
    ax = plot_sweep([row("cupcake", profile=name, cost_s=its) for name, its in (("b", 2.0), ("a", 1.0))])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b", "a"]
    assert {line.get_linestyle() for line in ax.lines} == {"None"}


def test_rows_without_a_value_are_left_out() -> None:
    ax = plot_sweep([row(batch=1), row(batch=2, cost_s=None), row(batch=3)])
    assert lines(ax)["plan"][0] == [1.0, 3.0]


def test_other_axes_are_chosen() -> None:
    rows = [row(batch=batch, budget=budget) for batch in (1, 2) for budget in ("1GB", "2GB", "3GB")]
    ax = plot_sweep(rows, x="batch", y="details.overhead")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("batch", "overhead")
    assert set(lines(ax)) == {"budget 1GB", "budget 2GB", "budget 3GB"}


def test_every_system_has_axes_of_its_own_and_those_without_a_swept_field_none() -> None:
    rows = [row(batch=1), row(batch=2), row("cupcake", profile="a"), row("taccl", (), size="1MB")]
    assert [ax.get_title() for ax in draw_sweep(rows).axes] == ["monet", "cupcake"]
    assert [ax.get_xlabel() for ax in draw_sweep(rows, "batch").axes] == ["batch"]


@pytest.mark.parametrize(
    ("rows", "x", "y", "message"),
    [
        ([row("monet", (), batch=1)], None, None, "swept are no fields"),
        ([row(batch=1, cost_s=None)], None, None, "there are no results to draw"),
        ([row(batch=1)], "bacth", None, "--x bacth: there are no results .* did you mean 'batch'"),
        ([row(batch=1)], None, "peak_byte", "--y: must be a column of numbers, got 'peak_byte'; did you mean 'peak_by"),
        (
            [row(seed=k, batch=n) for k in range(40) for n in range(41)],
            None,
            None,
            "1 to 32 curves, got 40 over 'batch'",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(rows: list[Row], x: str | None, y: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_sweep(rows, x, y)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([1, 2.5], [1.0, 2.5]),
        (["0.5x", "1x"], [0.5, 1.0]),
        (["1KB", "1MiB"], [1000.0, 1048576.0]),
        (["1Gbps", "1GB/s"], [125e6, 1e9]),
        (["1us", "2ms"], [1e-6, 2e-3]),
        (["0.5x", "1GB"], None),
        (["nan", "1"], None),
        (["ring:4", "dgx1"], None),
    ],
)
def test_values_of_one_kind_are_numbers(values: list[Any], numbers: list[float] | None) -> None:
    assert _numbers(values) == (None if numbers is None else pytest.approx(numbers))


def test_a_column_of_one_system_is_refused_where_there_is_nothing() -> None:
    with pytest.raises(InputError, match="1 to 32 curves, got 0 over 'btch'"):
        plot_sweep([row(batch=1)], x="btch")
    with pytest.raises(InputError, match="no field of the sweep is a list"):
        plot_sweep([row("monet", (), batch=1)])


def test_three_systems_leave_the_fourth_place_empty() -> None:
    rows = [row("monet", batch=1), row("cupcake", profile="a"), row("taccl", size="1MB")]
    assert [ax.axison for ax in draw_sweep(rows).axes] == [True, True, True, False]


def test_an_equal_table_gives_an_equal_file(tmp_path: Path) -> None:
    from gapless.plot.style import save

    for name in ("a.svg", "b.svg"):
        save(draw_sweep([row(batch=1), row(batch=2)]), str(tmp_path / name))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
