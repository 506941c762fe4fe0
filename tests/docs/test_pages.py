"""What the documentation says can be done is done here, as it stands there."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from doc_pages import NOT_RUN, ROOT, Block, blocks, commands, missing_line, pages, run_page
from published import PUBLISHED
from questions import content

from gapless.cli.commands import build_parser
from gapless.installation.extras import EXTRAS
from gapless.system import _elsewhere, find_system, system_names

ALL = [*pages(), ROOT / "CONTRIBUTING.md"]
RUN = [page for page in ALL if any(block.is_run for block in blocks(page.read_text(encoding="utf-8")))]
QUICK = ("formats.md", "replay.md", "stopping.md", "taccl-ef.md", "trace.md")
MOST_NOT_RUN = 0.15
TUTORIALS = [page for page in ALL if page.parent.name == "tutorials"]
SIDE_BY_SIDE = re.compile(r"^```sh\n(?:(?!```).*\n)+```\n\n```python$", re.MULTILINE)
_REASONS = "|".join(NOT_RUN)
MARK = re.compile(
    rf"(?:run with \w+|(?:file|more): [\w./-]+|output(?:, numbers vary|, once)?|picture|not run: (?:{_REASONS}))?"
)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return build_parser()


@pytest.mark.thorough(but=QUICK)
@pytest.mark.parametrize("page", RUN, ids=name)
def test_every_block_runs_as_it_stands(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    try:
        assert run_page(page.read_text(encoding="utf-8"), tmp_path) > 0
        if page in TUTORIALS:  # where what the shell has written is what Python has written
            ending = find_system(page.stem).ending
            assert content(tmp_path / f"plan{ending}") == content(tmp_path / f"same{ending}")
    finally:
        _elsewhere.cache_clear()  # what the page has installed is gone with its folder
        for module in [key for key, value in sys.modules.items() if _lies_in(value, tmp_path)]:
            del sys.modules[module]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    return Path(getattr(module, "__file__", None) or "/").is_relative_to(folder)


@pytest.mark.parametrize("page", ALL, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(found), "a fence begins in column 1"
    for block in found:
        assert block.language, f"what language is this? {block.text}"
        assert MARK.fullmatch(block.mark), f"unknown comment: {block.mark}; not run are: {', '.join(NOT_RUN)}"
        assert block.mark or block.language != "text", f"is this printed by a command? {block.text}"


def test_few_blocks_are_not_run_and_each_reason_is_needed() -> None:
    found = [block for page in ALL for block in blocks(page.read_text(encoding="utf-8"))]
    code = [block for block in found if block.language in ("sh", "python")]
    left_out = [block for block in code if block.mark.startswith("not run")]
    assert {block.mark.removeprefix("not run: ") for block in left_out} == set(NOT_RUN)
    assert len(left_out) <= MOST_NOT_RUN * len(code)


def test_lines_that_a_page_shows_are_looked_for_in_order() -> None:
    text = "status  optimal\nbound 9 us\n"
    assert missing_line(Block("output", "text", text), "x\nstatus optimal\ny\n  bound  9 us\n") is None
    assert missing_line(Block("output", "text", text), "bound 9 us\nstatus optimal\n") == "bound 9 us"
    assert missing_line(Block("output", "text", text), "status optimal\nbound 8 us\n") == "bound 9 us"
    assert missing_line(Block("output, numbers vary", "text", text), "status optimal\nbound 8.5 ms\n") is None
    assert missing_line(Block("output, numbers vary", "text", text), "status optimal\ngap 8.5 ms\n") == "bound #"
    assert missing_line(Block("output", "text", "status ...\n"), "status optimal\n") is None


@pytest.mark.parametrize("page", ALL, ids=name)
def test_every_command_is_one_that_the_command_line_knows(
    page: Path, parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks(page.read_text(encoding="utf-8"))
    if any(block.mark == "file: pyproject.toml" for block in found):
        return  # its commands are known once it is installed
    for words in [words for block in found if block.language == "sh" for words in commands(block)]:
        if "gapless" in words:
            try:
                parser.parse_args(words[words.index("gapless") + 1 :])
            except SystemExit:
                pytest.fail(f"{shlex.join(words)}: {capsys.readouterr().err}")
        elif words[0] == "pytest":
            assert all((ROOT / word).exists() for word in words if word.endswith(".py")), shlex.join(words)
        elif words[:2] == ["pip", "install"]:
            named = re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*)\]", " ".join(words))))
            assert set(named) <= set(EXTRAS), f"{shlex.join(words)}: there is no such extra"


def test_each_published_system_has_a_tutorial_and_a_page_leads_to_it() -> None:
    assert [page.stem for page in TUTORIALS] == list(PUBLISHED)
    text = (ROOT / "docs" / "which-system.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(tutorials/(\w+)\.md\)", text)) == set(PUBLISHED)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_leads_from_a_problem_to_the_plan_in_use(page: Path) -> None:
    start, *sections = re.split("^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert start.split("\n\n")[1].startswith("You "), "it starts from a person's problem"
    parts = {section.partition("\n")[0]: section for section in sections}
    assert list(parts) == ["Install", "The plan", "The picture", "The plan in use", "Your own", "Next"]
    assert blocks(parts["Install"])[0].text.startswith('pip install ".[plot')
    for title in ("The plan", "The picture"):
        assert SIDE_BY_SIDE.search(parts[title]), f"{title}: the shell's block has Python's right behind it"
    assert re.search(r"!\[[^]]+\]\(\.\./images/[\w-]+\.svg\)", parts["The picture"])
    languages = [block.language for block in blocks(parts["The plan in use"]) if not block.mark.startswith("not run")]
    assert {"sh", "python"} <= set(languages)
    assert "| instead of | take |" in parts["Your own"]
    gain = parts["Next"].split("\n\n")[1]
    assert gain.startswith("**The gain.** "), "it ends with what that person has"
    figures = re.findall(r"\d[\d.,]*\d(?= (?:ms|us|%|users|rows|bytes))", gain)
    assert all(figure in start or figure in "".join(parts[title] for title in list(parts)[:-1]) for figure in figures)


def test_every_page_can_be_reached() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    docs = ROOT / "docs"
    files = (
        *docs.rglob("*.md"),
        *(path.with_suffix(".md") for path in docs.rglob("*.ipynb")),
    )
    there = {page.relative_to(docs).as_posix() for page in files}
    assert there == listed, f"nav of mkdocs.yml and docs/ differ: {sorted(there ^ listed)}"


@pytest.mark.extra("docs")
@pytest.mark.thorough("all")
@pytest.mark.parametrize("reports", ["none", "all"])
def test_the_site_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: str) -> None:
    monkeypatch.setenv("GAPLESS_SITE_REPORTS", reports)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert built.returncode == 0, built.stderr
    first = (site / "index.html").read_text(encoding="utf-8")
    assert 'src="images/first.svg"' in first
    assert 'href="which-system/"' in first
    assert (site / "tutorials" / "taccl" / "index.html").is_file()
    assert "data:image/" in (site / "notebooks" / "chai" / "index.html").read_text(encoding="utf-8")
    for system in system_names():  # with pictures, nothing to fetch, and a time line unless a cost is minimised
        report = (site / "reports" / f"{system}.html").read_text(encoding="utf-8")
        assert ("explorer-data" in report) == (reports == "all" and system != "sharding"), system
        assert ("<svg" in report) == (reports == "all"), system
        assert f'href="{system}.html"' in (site / "reports" / "index.html").read_text(encoding="utf-8")
    assert 'href="taccl/"' in (site / "notebooks" / "index.html").read_text(encoding="utf-8")
    assert "gapless sweep file" in (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert 'id="gapless.result.Result"' in (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
