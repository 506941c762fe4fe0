"""Pictures as matplotlib has them: what is on the axes, and that many events stay legible."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from small_plans import SYSTEMS, small_plan

from gapless.anytime.convergence import Convergence
from gapless.checker import check
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.plot import plot_convergence, plot_gantt, plot_memory, plot_resources, plot_topology
from gapless.plot.gantt import MOST_BARS, MOST_ROWS, _shades, kind_colours
from gapless.plot.lanes import AGAIN, lanes_of
from gapless.plot.network import _layout
from gapless.plot.pictures import draw, pictures_of
from gapless.plot.style import BROWN, PALETTE, finish, new_axes, svg_text
from gapless.result import read_saved
from gapless.topologies.topology import Link, Topology


@pytest.fixture(scope="module", params=SYSTEMS)
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SavedPlan:
    return read_saved(str(small_plan(request.param, tmp_path_factory.mktemp(request.param))))


def pixels(ax: Any) -> np.ndarray:
    """The picture as it is drawn, shape (height, width, 3), 0 to 1."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3] / 255


def ring(ranks: int, rounds: int) -> Schedule:
    """Every rank sends to the next in every round, with a pause between rounds."""
    links = tuple(Link(k, (k + 1) % ranks, 1.0, 0.0) for k in range(ranks))
    topology = Topology("ring", tuple(k // 8 for k in range(ranks)), links)
    graph = Graph(np.array([8]), initial=Placement.of([(0, k) for k in range(ranks)]))
    events = [
        Event(EventKind.TRANSFER, 2.0 * turn, 2.0 * turn + 1.0, link, moves=(0,))
        for turn in range(rounds)
        for link in range(ranks)
    ]
    return schedule_from_events(graph, topology, events, "ring")


@pytest.mark.thorough(but=("pipeline",))
def test_every_picture_of_every_system_is_drawn(plan: SavedPlan) -> None:
    for kind in pictures_of(plan):
        ax = draw(plan, kind)
        assert pixels(ax).min() < 0.9  # something is there
        assert svg_text(ax.figure, kind).startswith("<svg")


@pytest.mark.thorough("taccl")
def test_axes_in_axes_out(plan: SavedPlan) -> None:
    from matplotlib.figure import Figure

    for plot in (plot_gantt, plot_memory):
        ax = Figure().add_subplot()
        assert plot(plan.schedule, ax) is ax
        assert ax.has_data()


@pytest.mark.thorough("taccl")
def test_gantt_is_as_long_as_the_replay_says(plan: SavedPlan) -> None:
    ax = plot_gantt(plan.schedule)
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[ax.get_xlabel().split("(")[1].split(")")[0]]
    assert ax.get_xlim()[1] * scale == pytest.approx(check(plan.schedule).makespan_s)


def test_few_links_have_a_bar_for_each_event() -> None:
    ax = plot_gantt(ring(ranks=4, rounds=5))
    assert sum(len(bars.get_paths()) for bars in ax.collections) == 20
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "0 \u2192 1", "1 \u2192 2", "2 \u2192 3", "3 \u2192 0",
    ]  # fmt: skip


@pytest.mark.thorough("80-20")
@pytest.mark.parametrize(("ranks", "rounds"), [(4, 5), (80, 20), (300, 4)])
def test_resources_are_drawn_with_the_share_of_the_makespan_in_which_they_are_held(ranks: int, rounds: int) -> None:
    schedule = ring(ranks, rounds)
    ports = tuple(Link(k, (k + 1) % ranks, 1.0, 0.0, resources=(k,)) for k in range(ranks))
    names = tuple(f"port{k}" for k in range(ranks))
    ax = plot_resources(replace(schedule, topology=Topology("ring", (0,) * ranks, ports, resources=names)))
    labels = [text.get_text() for text in ax.get_yticklabels()]
    share = round(100 * rounds / (2 * rounds - 1))
    assert labels[0] == f"port0, {share} %"
    assert len(labels) == min(ranks, MOST_ROWS)
    assert (", the 96 busiest of 300 resources" in ax.get_title(loc="left")) == (ranks == 300)
    assert (pixels(ax).max(axis=2) < 0.2).mean() < 0.05


@pytest.mark.thorough("80-20")
@pytest.mark.parametrize(("ranks", "rounds"), [(80, 20), (4, 2000), (1024, 3)])
def test_many_ranks_or_events_become_shades_and_never_a_black_block(ranks: int, rounds: int) -> None:
    ax = plot_gantt(ring(ranks, rounds))
    rows = len(ax.get_yticklabels())
    assert rows <= MOST_ROWS
    assert rounds <= MOST_BARS or len(ax.images) == 1
    picture = pixels(ax)
    assert (picture.max(axis=2) < 0.2).mean() < 0.05  # black is but text and axes
    height_px = ax.get_window_extent().height / rows
    assert height_px >= 5
    labels = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert all(not one.overlaps(other) for one, other in itertools.pairwise(labels))


def test_row_that_is_idle_half_the_time_is_half_as_dark() -> None:
    busy = np.asarray(plot_gantt(ring(4, 2000)).images[0].get_array())
    middle = busy[:, 100:-100].mean(axis=1)
    assert np.ptp(middle, axis=0).max() < 0.01
    assert busy.shape[0] % 4 == 0
    assert 0.2 < middle[0][0] < 0.9


def test_a_rare_kind_has_a_strip_of_its_own_beside_a_frequent_one() -> None:
    busy = np.zeros((3, 2, 10))
    busy[0, :, :] = 1.0  # the first kind is there all the time in both rows
    busy[2, 1, 4] = 0.01
    lanes = replace(lanes_of(ring(4, 5)), names=("0", "1"), kinds=("send in a node", "unseen", "send between nodes"))
    shades = _shades(busy, lanes)
    strips = shades.reshape(2, -1, 10, 3)
    assert (strips[0] == strips[0, 0, 0]).all()
    above, below = np.split(strips[1], 2)
    assert (above == strips[0, 0, 0]).all()
    assert (below[:, 4] < 1.0).any()
    assert (np.delete(below, 4, axis=1) == 1.0).all()


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"status": "optimal", "objective_s": 9.0, "bound_s": 9.0}, "optimal"),
        ({"status": "feasible", "objective_s": 9.0, "bound_s": 8.8389}, "gap 1.79 %"),
        ({}, "no bound"),
    ],
)
def test_the_title_says_how_far_from_optimal_the_plan_can_be(claim: dict[str, object], words: str) -> None:
    ax = draw(SavedPlan("elsewhere", {}, claim, {}, ring(4, 5)), "gantt")
    assert ax.get_title(loc="left").endswith(f", {words}")
    pixels(ax)  # lays the picture out
    texts = [
        text for text in ax.get_children() if isinstance(text, Text) and text.get_text() == ax.get_title(loc="left")
    ]
    assert texts
    assert not any(text.get_window_extent().overlaps(ax.get_legend().get_window_extent()) for text in texts)


def test_bars_are_told_apart_without_red_and_green() -> None:
    from matplotlib.colors import to_rgb

    from gapless.plot.style import PALETTE

    # What is left of a colour in deuteranopia, the most common kind (Machado, Oliveira, Fernandes 2009, severity 1).
    seen_by = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]])
    seen = np.array([to_rgb(colour) for colour in PALETTE]) @ seen_by.T
    distance = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.eye(len(seen))
    assert distance.min() > 0.1


def test_memory_shows_the_peak_the_budget_and_what_runs_again(tmp_path: Path) -> None:
    plan = read_saved(str(small_plan("monet", tmp_path)))
    schedule, ax = plan.schedule, draw(plan, "memory")
    titles = [text.get_text() for text in ax.get_legend().get_texts()]
    assert titles[1] == "budget 45 B"
    assert {"recomputation", "backward"} <= set(titles)
    live = ax.lines[0].get_ydata()
    assert max(live) == check(schedule).peak_bytes[0]
    assert max(ax.get_ylim()) > 45


def test_memory_of_many_levels_keeps_the_peak(random_schedule: Callable[[random.Random], Schedule]) -> None:
    for seed in range(10):
        schedule = random_schedule(random.Random(seed))
        for device, peak in enumerate(check(schedule).peak_bytes):
            assert max(plot_memory(schedule, device=device).lines[0].get_ydata()) == peak
    with pytest.raises(InputError, match="device must be in 0"):
        plot_memory(schedule, device=99)


@pytest.mark.thorough
def test_memory_of_thousands_of_levels_is_drawn_with_a_few_thousand_points() -> None:
    schedule = ring(2, 20_000)
    frees = np.full(len(schedule), 1)
    lists = replace(schedule.moves, start=np.arange(len(schedule) + 1), values=np.zeros(len(schedule), dtype=np.int64))
    target = schedule.topology.link_target[schedule.place]
    schedule = replace(schedule, freed_tensor=lists, freed_device=replace(lists, values=target))
    assert frees.sum() == len(schedule)
    assert len(plot_memory(schedule, device=0).lines[0].get_ydata()) < 5000


def test_topology_is_arrows_for_few_ranks_and_a_matrix_for_many() -> None:
    few, many = plot_topology(ring(8, 2)), plot_topology(ring(80, 2))
    assert (len(few.patches), len(few.images)) == (8, 0)
    assert len(many.images) == 2
    shown = np.asarray(many.images[1].get_array().filled(np.nan))
    assert np.nanmax(shown) == pytest.approx(100 * 2 / 3)  # two rounds of one second in three
    assert np.isfinite(shown).sum() == 80
    assert "80 of 80 links in use" in many.get_title(loc="left")


def test_links_swing_clear_of_ranks_that_they_do_not_join_and_never_lie_on_each_other() -> None:
    ends = [(0, 9), (9, 0), (8, 1), (0, 4), (4, 0), *((k, (k + 1) % 8) for k in range(8))]
    topology = Topology("two", tuple(k // 8 for k in range(16)), tuple(Link(a, b, 1.0, 0.0) for a, b in ends))
    layout = _layout(topology, np.ones(len(ends)))
    share = np.linspace(0, 1, 101)[:, None]
    curves = {}
    for (first, last), bend in zip(ends, layout.bends, strict=True):
        start, end = layout.place[first], layout.place[last]
        control = (start + end) / 2 + bend * np.array([(end - start)[1], -(end - start)[0]])
        curves[first, last] = (1 - share) ** 2 * start + 2 * share * (1 - share) * control + share**2 * end
        others = np.delete(layout.place, [first, last], axis=0)
        others = others[~np.isnan(others[:, 0])]
        assert np.linalg.norm(curves[first, last][:, None] - others, axis=2).min() > 0.15, (first, last)
        assert np.all(curves[first, last] >= layout.corners[0])
        assert np.all(curves[first, last] <= layout.corners[1])
    assert np.abs(curves[0, 4] - curves[4, 0][::-1]).max() > 0.05
    assert np.abs(curves[0, 9] - curves[9, 0][::-1]).max() > 0.05
    assert np.isnan(layout.place[[10, 11, 12, 13, 14, 15]]).all(), "no link in use joins them"


def test_what_runs_again_has_a_colour_of_its_own(tmp_path: Path) -> None:
    plan = read_saved(small_plan("monet", tmp_path))
    lanes = lanes_of(plan.schedule)
    assert AGAIN in lanes.kinds
    assert kind_colours(lanes.kinds)[lanes.kinds.index(AGAIN)] == BROWN
    assert BROWN not in PALETTE


def test_large_numbers_at_an_axis_are_in_full() -> None:
    axes = new_axes(4.0, 3.0)
    axes.plot([1_000_000, 1_000_010], [1.0, 1.1])
    finish(axes)
    axes.figure.draw_without_rendering()
    assert {text.get_text() for text in axes.get_xticklabels()} & {"1,000,000", "1,000,004"}
    assert axes.xaxis.get_offset_text().get_text() == ""


def test_convergence_of_an_error_has_no_unit() -> None:
    assert plot_convergence(Convergence((0.1,), (8e-3,), (4e-3,), "error")).get_ylabel() == "error"


def test_convergence_has_both_lines_and_no_point_where_nothing_was_known() -> None:
    ax = plot_convergence(Convergence((0.1, 0.2, 0.3), (None, 8e-3, 6e-3), (4e-3, 4e-3, 5e-3)))
    incumbent, bound = ax.lines[:2]
    assert list(incumbent.get_xdata()) == [0.2, 0.3]
    assert list(incumbent.get_ydata()) == pytest.approx([8.0, 6.0])
    assert list(bound.get_ydata()) == pytest.approx([4.0, 4.0, 5.0])
    assert ax.get_ylabel() == "objective (ms)"


@pytest.mark.thorough(but=("cupcake",))
def test_equal_pictures_are_equal_files(plan: SavedPlan) -> None:
    first, second = (svg_text(draw(plan, "gantt").figure, "gantt") for _ in range(2))
    assert first == second


def test_a_plan_without_events_is_drawn_empty() -> None:
    graph = Graph(np.array([1]), initial=Placement.of([(0, 0)]))
    schedule = schedule_from_events(graph, Topology("one", (0,)), [], "nothing")
    for plot in (plot_gantt, plot_memory, plot_topology):
        pixels(plot(schedule))
