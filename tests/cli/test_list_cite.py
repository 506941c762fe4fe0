"""What is listed; what to cite is said once, and the citation file says the same."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from commands import commands

import gapless
from gapless.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TABLES = next(action.choices for action in commands()["list",]._actions if action.dest == "what")  # noqa: SLF001
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["list", "--cite"]) == 0
    return capsys.readouterr().out


def test_the_papers_and_gapless_are_cited(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    assert re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE) == [
        "gapless",
        "bagpipe",
        "chai",
        "cupcake",
        "monet",
        "oktopk",
        "optimuscc",
        "accordion",
        "alpa",
        "taccl",
    ]
    assert text.count("{") == text.count("}")
    for entry in text.split("\n\n"):
        assert {"title", "author", "year"} <= set(re.findall(r"^  (\w+) +=", entry, re.MULTILINE))


def test_the_citation_file_names_the_same_papers_and_authors(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    titles = [title.replace("{", "").replace("}", "") for title in re.findall(r"title += \{(.*)\},", text)]
    for title in titles[1:]:
        assert f'title: "{title}"' in CITATION
    authors = " and ".join(re.findall(r"author += \{([^\n]*)\},", text)).replace('{\\"a}', "ä").replace('{\\"u}', "ü")
    for family in re.findall(r"family-names: ([^}]+)\}", CITATION):
        assert f"{family}," in authors


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"version = {{{gapless.__version__}}}" in printed(capsys)
    assert (files("gapless") / "references.bib").is_file()


def test_list_wants_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["list", "sketches", "--cite"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_list_alone_says_what_there_is_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(TABLES)
    assert all(row["what"].endswith(".") and "\n" not in row["what"] for row in rows)
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["name", *TABLES]


@pytest.mark.parametrize("table", ["", *TABLES])
def test_quiet_lists_names_alone(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["list", *filter(None, [table])]
    assert main([*words, "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == names
