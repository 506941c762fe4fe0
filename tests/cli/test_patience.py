"""`report` and `plot` when there is no time left for the replay or the pictures, or somebody stops them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from calls import run
from small_plans import small_plan

from gapless.checker import inspection
from gapless.cli.patience import Patience
from gapless.plot import pictures

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_plan("taccl", tmp_path_factory.mktemp("in_time"))


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Is not set before the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def stuck(never: threading.Event, heard: None) -> Callable[..., Any]:
    """Work during which somebody stops the command, and which doesn't end by itself."""

    def work(*values: object, **named: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        never.wait()

    return work


def test_what_ends_in_time_is_handed_on_and_what_it_raises_is_raised() -> None:
    patience = Patience(None, threading.Event())
    assert patience.given(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        patience.given(lambda: 1 // 0)


def test_what_does_not_end_in_time_is_left_behind_and_nothing_else_is_begun(never: threading.Event) -> None:
    begun = []
    patience = Patience(1e-3, threading.Event())
    assert patience.given(never.wait) is None
    assert patience.given(lambda: begun.append(1)) is None
    assert begun == []
    assert patience.why_over == "the time limit was reached"


def test_a_page_without_a_finished_replay_says_so(
    capfd: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stuck: Callable[..., Any],
) -> None:  # fmt: skip
    monkeypatch.setattr(inspection, "judged", stuck)
    page = tmp_path / "report.html"
    code, out, err = run(capfd, "report", str(plan), "-o", str(page), "--no-pictures")
    assert (code, out) == (4, f"{page}: not replayed\n")
    assert "gapless: left out, as it was stopped: the replay" in err
    text = page.read_text()
    assert "Not replayed: whether the plan is valid is not known." in text
    assert "Replays clean" not in text
    assert "What the replay found" not in text
    assert "What the solver claims" in text


def test_a_page_names_the_pictures_that_it_lacks(
    capfd: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stuck: Callable[..., Any],
) -> None:  # fmt: skip
    monkeypatch.setattr(pictures, "plot_topology", stuck)
    page = tmp_path / "report.html"
    code, out, err = run(capfd, "report", str(plan), "-o", str(page))
    assert (code, out.endswith("events: valid\n")) == (0, True)
    left_out = "left out, as it was stopped: topology, resources, convergence"
    assert left_out in err
    assert left_out in page.read_text()
    assert page.read_text().count("<svg") == 1


def test_a_picture_is_drawn_though_its_replay_is_not_finished(
    capfd: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stuck: Callable[..., Any],
) -> None:  # fmt: skip
    monkeypatch.setattr(inspection, "judged", stuck)
    picture = tmp_path / "plan.svg"
    code, out, _ = run(capfd, "plot", str(plan), "-o", str(picture))
    assert (code, picture.exists()) == (0, True)
    assert "not replayed, `gapless check` does that" in out


def test_a_picture_that_is_not_finished_is_not_there(
    capfd: pytest.CaptureFixture[str], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stuck: Callable[..., Any],
) -> None:  # fmt: skip
    monkeypatch.setattr(pictures, "plot_gantt", stuck)
    code, out, err = run(capfd, "plot", str(plan), "-o", str(tmp_path / "plan.svg"))
    assert (code, out) == (4, "")
    assert "gapless: no picture: it was stopped before it was finished\n" in err
    assert list(tmp_path.iterdir()) == []


def test_advice_that_has_found_nothing_says_so(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stuck: Callable[..., Any]
) -> None:
    monkeypatch.setattr("gapless.encodings.cupcake.commands.advice.find_fusion_profile", stuck)
    asked = ("advise", "compression", "--profile", "vgg16", "--ranks", "16", "--bandwidth", "10Gbps")
    code, out, err = run(capfd, *asked)
    assert (code, out) == (4, "")
    assert "gapless: no answer: it was stopped before anything was finished\n" in err


def test_memory_is_drawn_of_the_replay_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.plot import memory
    from gapless.plot.style import svg_text
    from gapless.result import read_saved

    plan = read_saved(str(small_plan("monet", tmp_path)))
    expected = svg_text(pictures.draw(plan, "memory").figure, "memory")
    found = inspection.inspected(plan.schedule)
    monkeypatch.delattr(memory, "replayed")
    assert svg_text(pictures.draw(plan, "memory", seen=found).figure, "memory") == expected
