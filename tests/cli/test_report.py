"""`gapless report`: one page, complete, with nothing to fetch; read by a parser and by a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_plans import SYSTEMS, small_plan, solve_command
from spawned import PATIENCE_S

from gapless import __version__
from gapless.checker import check, inspection
from gapless.cli.main import main
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Event, EventKind, schedule_from_events
from gapless.plot.pictures import pictures_of
from gapless.report.explorer import explorer_html, explorer_script
from gapless.report.headline import answer_of, is_timed, length_of, question_of, verdicts_of
from gapless.report.html_page import Page, write_page
from gapless.result import read_saved
from gapless.topologies.topology import Link, Topology

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NAMES_PX, AXIS_PX, ROW_PX = 130, 22, 18
"""What the script of the time line leaves for names, its axis and a row."""
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Checks that tags are balanced and ids are used once, and notes texts and what is referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                self.addresses.append(value or "")
            self.addresses += re.findall(r"url\((.*?)\)", value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module", params=SYSTEMS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """The system, its plan, and the plan's report."""
    folder = tmp_path_factory.mktemp(request.param)
    plan = small_plan(request.param, folder)
    assert main(["report", str(plan), "-o", str(folder / "report.html"), "--quiet"]) == 0
    return request.param, plan, folder / "report.html"


@pytest.mark.thorough("taccl")
def test_page_is_well_formed_and_refers_to_nothing_outside(made: tuple[str, Path, Path]) -> None:
    reader = read(made[2])
    assert all(address.startswith(("#", "data:")) for address in reader.addresses)
    assert not {"link", "iframe", "img", "object"} & set(reader.tags)
    text = made[2].read_text()
    assert "@import" not in text
    if not is_timed(read_saved(str(made[1])).claim):
        assert "script" not in reader.tags, "a schedule of time points has no time line"
        assert "script-src 'none';" in text
        return
    assert reader.tags.count("script") == 2  # the data of the time line, and what draws them
    script = text.rsplit("<script>", 1)[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in text


@pytest.mark.thorough("taccl")
def test_page_tells_what_was_asked_claimed_replayed_and_how(made: tuple[str, Path, Path]) -> None:
    system, path, page = made
    plan, text = read_saved(str(path)), " ".join(read(page).texts)
    report = check(plan.schedule)
    length = length_of(plan.claim, report.makespan_s)
    assert f"Replays clean: {report.event_count} events, {length}." in text
    question = question_of(system, plan.problem)
    answer, (verdict, narrower) = answer_of(plan, report), verdicts_of(plan, report)
    head = " ".join(text[text.rindex(question, 0, text.index("Replays clean")) :].split())
    assert head.startswith(f"{question} Answer {answer} Gap {verdict}")
    assert all(said in head for _, said in narrower)
    for name in ("status", "bound", "gap", "seed", "solver", "solver version", length.split()[0], "highspy", "gapless"):
        assert re.search(rf"\b{name}\b", text), name
    command = shlex.join(["gapless", *solve_command(system, path.parent), "--quiet"])
    assert command in text
    assert __version__ in text


@pytest.mark.thorough("taccl")
def test_page_has_the_pictures_as_svg(made: tuple[str, Path, Path]) -> None:
    count = len(pictures_of(read_saved(str(made[1]))))
    assert count >= {"taccl": 4, "oktopk": 3, "cupcake": 1}.get(made[0], 2)
    assert read(made[2]).tags.count("svg") == count


@pytest.mark.thorough(but=("cupcake",))
def test_equal_plans_give_equal_pages(made: tuple[str, Path, Path], tmp_path: Path) -> None:
    assert main(["report", str(made[1]), "-o", str(tmp_path / "again.html"), "--quiet"]) == 0
    assert (tmp_path / "again.html").read_bytes() == made[2].read_bytes()


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return small_plan("taccl", tmp_path)


def test_without_pictures_no_extra_is_needed(plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["report", str(plan), "-o", str(tmp_path / "out.html"), "--no-pictures", "--quiet"]) == 0
    assert "svg" not in read(tmp_path / "out.html").tags


def test_broken_plan_gets_a_page_that_says_so_and_ends_with_5(plan: Path, tmp_path: Path) -> None:
    data = json.loads(plan.read_text())
    data["schedule"]["start_s"][0] = 5e-4
    data["problem"]["sketch"] = "<script>alert('& no')</script>"
    plan.write_text(json.dumps(data))
    assert main(["report", str(plan), "-o", str(tmp_path / "out.html"), "--no-pictures"]) == 5
    reader = read(tmp_path / "out.html")
    text = " ".join(reader.texts)
    assert "Does not replay clean" in text
    assert "unknown-id" in text
    assert reader.tags.count("script") == 2


def test_a_bound_that_the_replay_refutes_is_called_false_and_proves_nothing(plan: Path, tmp_path: Path) -> None:
    data = json.loads(plan.read_text())
    data["claim"]["bound_s"] = 10 * data["claim"]["objective_s"]
    plan.write_text(json.dumps(data))
    assert main(["report", str(plan), "-o", str(tmp_path / "out.html"), "--no-pictures", "--quiet"]) == 0
    text = " ".join(read(tmp_path / "out.html").texts)
    assert "which is false" in text
    assert "no plan is better" not in text


def test_plan_that_does_not_say_how_it_was_made_gets_a_page(plan: Path, tmp_path: Path) -> None:
    data = json.loads(plan.read_text())
    data["run"] = {}
    plan.write_text(json.dumps(data))
    assert main(["report", str(plan), "-o", str(tmp_path / "out.html"), "--no-pictures", "--quiet"]) == 0
    assert "The plan does not say." in " ".join(read(tmp_path / "out.html").texts)


@dataclass
class Seen:
    """What a browser did with a page: what it fetched, and what it complained of."""

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def number(self, name: str) -> float:
        """What the script says that it has drawn."""
        return float(self.page.locator("#explorer-canvas").get_attribute(f"data-{name}"))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what the script draws next; nothing may be evaluated in the page to see it, says its policy."""
        for _ in range(int(PATIENCE_S / 0.02)):
            if is_so():
                return
            self.page.wait_for_timeout(20)
        pytest.fail("the page has not drawn what was asked for")

    def click(self, x: float, row: int) -> str:
        """Click on the time line, at a share of its width and in a row; returns what is said of the event."""
        canvas = self.page.locator("#explorer-canvas")
        box = canvas.bounding_box()
        position = {"x": NAMES_PX + x * (box["width"] - NAMES_PX), "y": AXIS_PX + (row + 0.5) * ROW_PX}
        canvas.click(position=position)
        return str(self.page.locator("#explorer-about").inner_text())


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("needs a Chromium or Chrome")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(driver: Any, path: Path, width: int = 1200, colours: str = "light") -> Iterator[Seen]:
    page = driver.new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    page.set_default_timeout(1000 * PATIENCE_S)
    seen = Seen(page)
    page.on("request", lambda request: seen.asked.append(request.url))
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(path.as_uri())
    if page.locator("#explorer-canvas").count():
        page.locator("#explorer-canvas[data-bars]").wait_for()
    yield seen
    page.close()
    assert [url for url in seen.asked if not url.startswith("data:")] == [path.as_uri()]
    assert seen.complaints == []


@pytest.mark.thorough("pipeline")
@pytest.mark.parametrize(("width", "colours"), [(1200, "light"), (1200, "dark"), (400, "light")])
@pytest.mark.extra("test-browser")
def test_browser_shows_every_picture_and_asks_the_network_for_nothing(
    driver: Any, made: tuple[str, Path, Path], width: int, colours: str
) -> None:
    with opened(driver, made[2], width, colours) as seen:
        boxes: list[Any] = [figure.bounding_box() for figure in seen.page.locator("figure svg").all()]
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.page.locator(".verdict").inner_text().startswith("Replays clean")
        if is_timed(read_saved(str(made[1])).claim):
            assert seen.number("bars") > 0
    assert boxes
    assert all(box["width"] > width / 4 and box["height"] > width / 16 for box in boxes)


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two micro-batches on two ranks, one event after another."""
    folder = tmp_path_factory.mktemp("order")
    question = ["--profile", "uniform:f=10,b=12,w=8", "--ranks", "2", "--micro-batches", "2", "--hop", "2"]
    assert main(["solve", "pipeline", *question, "-o", str(folder / "order.json"), "--quiet"]) == 0
    assert main(["report", str(folder / "order.json"), "-o", str(folder / "order.html"), "--quiet"]) == 0
    return folder / "order.html"


@pytest.mark.extra("test-browser")
def test_a_click_says_what_an_event_is_and_leads_to_what_it_waits_for(driver: Any, order: Path) -> None:
    with opened(driver, order) as seen:
        cause = seen.page.locator("#explorer-cause")
        assert cause.is_disabled()
        assert "starts at once" in seen.click(0.02, 0)
        about = seen.click(0.995, 0)
        assert "on the critical path" in about
        assert "waits " in about
        for _ in range(40):  # back along the critical path
            if cause.is_disabled():
                break
            cause.click()
            assert "on the critical path" in seen.page.locator("#explorer-about").inner_text()
        assert "starts at once" in seen.page.locator("#explorer-about").inner_text()


@pytest.mark.extra("test-browser")
def test_rows_are_filtered_and_time_is_zoomed(driver: Any, order: Path) -> None:
    with opened(driver, order) as seen:
        every = seen.page.locator("#explorer-count").inner_text()
        seen.page.locator("#explorer-filter").fill("compute")
        assert seen.page.locator("#explorer-count").inner_text() == "2 of 4 rows"
        assert every == "4 of 4 rows"
        span_s = seen.number("until") - seen.number("from")
        seen.page.locator("#explorer-in").click()
        seen.until(lambda: seen.number("until") < span_s)
        assert seen.number("until") - seen.number("from") == pytest.approx(span_s / 2)
        seen.page.locator("#explorer-all").click()
        seen.until(lambda: seen.number("until") == span_s)
        seen.page.locator("#explorer-critical").check()


@pytest.mark.extra("test-browser")
def test_names_are_shown_as_they_are_and_never_run(driver: Any, order: Path, tmp_path: Path) -> None:
    evil = "</script><script>document.title='run'</script><img src=x onerror=alert(1)>"
    data = json.loads((order.parent / "order.json").read_text(encoding="utf-8"))
    data["schedule"]["name"] = data["problem"]["profile"] = evil[:60]
    for op in data["graph"]["ops"]:
        op["name"] = op["kind"] = evil
    (tmp_path / "evil.json").write_text(json.dumps(data), encoding="utf-8")
    main(["report", str(tmp_path / "evil.json"), "-o", str(tmp_path / "evil.html"), "--quiet", "--no-pictures"])
    with opened(driver, tmp_path / "evil.html") as seen:
        assert evil in seen.click(0.02, 0)
        assert seen.page.title() != "run"
        assert evil[:59] in seen.page.title()


@pytest.mark.thorough
@pytest.mark.extra("test-browser")
def test_a_hundred_thousand_events_are_drawn_as_few_bars(driver: Any, tmp_path: Path) -> None:
    links = [Link(k, (k + 1) % 4, 1.0, 0.0) for k in range(4)]
    graph = Graph(np.ones(4, dtype=np.int64), (), Placement.of([(k, k) for k in range(4)]))
    events = [Event(EventKind.TRANSFER, n, n + 0.75, place=k, moves=(k,)) for n in range(25_000) for k in range(4)]
    schedule = schedule_from_events(graph, Topology("ring", (0,) * 4, links), events)
    page = Page(
        "many", "", True, (), explorer=explorer_html(schedule, inspection.inspected(schedule)), script=explorer_script()
    )
    write_page(tmp_path / "many.html", page)
    with opened(driver, tmp_path / "many.html") as seen:
        assert seen.number("bars") <= 4 * 1200
        for _ in range(10):
            seen.page.locator("#explorer-in").click()
        seen.until(lambda: seen.number("bars") < 200)
        assert "could start 250 ms earlier" in seen.click(0.51, 1)
