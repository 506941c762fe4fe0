"""What the documentation says can be done is done here, as it stands there."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks, commands, pages, run_page

from gapless.cli.commands import build_parser
from gapless.system import _elsewhere

RUN = [page for page in pages() if any(block.mark == "run" for block in blocks(page.read_text(encoding="utf-8")))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.thorough("README.md", "index.md", "tutorials", "sweeps.md", "extending.md", "topology.md", "choose-a")
@pytest.mark.parametrize("page", RUN, ids=name)
def test_marked_examples_run_as_they_stand(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        assert run_page(page.read_text(encoding="utf-8"), tmp_path) > 0
    finally:
        _elsewhere.cache_clear()  # what the page has installed is gone with its folder


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_command_is_one_that_the_command_line_knows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser: argparse.ArgumentParser = build_parser()
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language != "sh" or block.mark == "run":  # those are run
            continue
        for words in commands(block):
            if "gapless" not in words:
                continue
            try:
                parser.parse_args(words[words.index("gapless") + 1 :])
            except SystemExit:
                pytest.fail(f"{shlex.join(words)}: {capsys.readouterr().err}")


def test_every_tutorial_has_five_commands_and_a_picture() -> None:
    tutorials = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    assert [page.stem for page in tutorials] == ["bagpipe", "cupcake", "monet", "pipeline", "taccl"]
    for page in tutorials:
        run = [list(commands(block)) for block in blocks(page.read_text(encoding="utf-8")) if block.mark == "run"]
        assert len(run[0]) == 5
        assert {words[1] for words in run[1]} == {"plot"}


def test_every_page_can_be_reached() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert there == listed, f"nav of mkdocs.yml and docs/ differ: {sorted(there ^ listed)}"


@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="mkdocstrings (extra docs) is not installed")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    assert (site / "tutorials" / "taccl" / "index.html").is_file()
    assert "gapless sweep file" in (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert 'id="gapless.result.Result"' in (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
