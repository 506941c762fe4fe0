"""`gapless report`: one page, complete, with nothing to fetch; read by a parser and by a browser."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from extras import HAS_MATPLOTLIB
from small_plans import SYSTEMS, small_plan, solve_command

from gapless import __version__
from gapless.checker import check
from gapless.cli.main import main
from gapless.result import read_saved
from gapless.units import format_seconds

HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
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
    if not HAS_MATPLOTLIB:
        pytest.skip("needs the extra `plot`")
    folder = tmp_path_factory.mktemp(request.param)
    plan = small_plan(request.param, folder)
    assert main(["report", str(plan), "-o", str(folder / "report.html"), "--quiet"]) == 0
    return request.param, plan, folder / "report.html"


@pytest.mark.thorough("taccl")
def test_page_is_well_formed_and_refers_to_nothing_outside(made: tuple[str, Path, Path]) -> None:
    reader = read(made[2])
    assert all(address.startswith(("#", "data:")) for address in reader.addresses)
    assert not {"script", "link", "iframe", "img", "object"} & set(reader.tags)
    assert "@import" not in made[2].read_text()


@pytest.mark.thorough("taccl")
def test_page_tells_what_was_asked_claimed_replayed_and_how(made: tuple[str, Path, Path]) -> None:
    system, path, page = made
    plan, text = read_saved(str(path)), " ".join(read(page).texts)
    report = check(plan.schedule)
    assert f"Replays clean: {report.event_count} events, makespan {format_seconds(report.makespan_s)}." in text
    for name in ("status", "bound", "gap", "seed", "solver", "solver version", "makespan", "highspy", "gapless"):
        assert re.search(rf"\b{name}\b", text), name
    command = shlex.join(["gapless", *solve_command(system, path.parent), "--quiet"])
    assert command in text
    assert __version__ in text


@pytest.mark.thorough("taccl")
def test_page_has_the_pictures_as_svg(made: tuple[str, Path, Path]) -> None:
    counts = {"taccl": 4, "monet": 2, "bagpipe": 2, "cupcake": 2, "oktopk": 2, "pipeline": 3, "chai": 3, "ranks": 2}
    count = counts[made[0]]
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
    assert "script" not in reader.tags


def test_plan_that_does_not_say_how_it_was_made_gets_a_page(plan: Path, tmp_path: Path) -> None:
    data = json.loads(plan.read_text())
    data["run"] = {}
    plan.write_text(json.dumps(data))
    assert main(["report", str(plan), "-o", str(tmp_path / "out.html"), "--no-pictures", "--quiet"]) == 0
    assert "The plan does not say." in " ".join(read(tmp_path / "out.html").texts)


@pytest.mark.skipif(not HAS_PLAYWRIGHT, reason="needs the extra `test-browser`")
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_browser_shows_every_picture_and_asks_the_network_for_nothing(made: tuple[str, Path, Path]) -> None:
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    complaints: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(made[2].as_uri())
        boxes: list[Any] = [figure.bounding_box() for figure in page.locator("figure svg").all()]
        width = page.evaluate("document.documentElement.scrollWidth")
        verdict = page.locator(".verdict").inner_text()
        browser.close()
    assert [url for url in asked if not url.startswith("data:")] == [made[2].as_uri()]
    assert complaints == []
    assert width <= 1200
    assert verdict.startswith("Replays clean")
    assert boxes
    assert all(box["width"] > 300 and box["height"] > 100 for box in boxes)
