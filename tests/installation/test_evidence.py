"""The printed tables that a command makes again: what the pages say, and what is held against them."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import commands
from doc_pages import ROOT, pages

from gapless.errors import InputError
from gapless.installation.doctor import Extra
from gapless.installation.evidence import Figure, Found, Row, _Answer, _held, evidence, rerun

PARSER = commands()[()]
TABLES = evidence()
FIELD = Row(
    "4, 8, 5",
    "gapless solve pipeline --profile uniform:f=10,b=12,w=8 --hop 2 --ranks 4 --micro-batches 8 --in-flight 5",
    (Figure("makespan_s", "286"), Figure("baselines_s.zb-h1", "306")),
)


def only(row: Row) -> Found:
    """What one row gave."""
    found = rerun([row], threading.Event())
    assert found is not None
    return found[0]


def test_names_are_told_apart() -> None:
    names = [table.name for table in TABLES]
    assert len(names) == len(set(names)) > 10


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_figure_stands_on_its_page(table) -> None:
    lines = list(rows_of(table.page))
    for row in table.rows:
        own = [cell for labels, cells in lines if row.label in labels for cell in cells]
        for figure in row.figures:
            number = rf"(?<![\d.,]){re.escape(figure.printed)}(?![\d%])"
            assert any(re.search(number, cell) for cell in own), (row.label, figure)
        if row.is_benchmark:
            assert all((ROOT / word).exists() for word in shlex.split(row.command) if word.startswith("tests/"))


def rows_of(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """What each row of a page's tables may be called, its first cell or its first ones, and its cells.

    An empty first cell stands for the one above.
    """
    text, above = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", (ROOT / page).read_text(encoding="utf-8")), ""
    for line in re.findall(r"^\|(.*)\|$", text, flags=re.MULTILINE):
        first, *others = [cell.strip() for cell in line.split("|")]
        above = first or above
        yield [", ".join([above, *others[:count]]) for count in range(3)], others


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_its_commands_are_known(table) -> None:
    for row in table.rows:
        words = shlex.split(row.command)
        assert words[0] in ("gapless", "pytest")
        if words[0] == "gapless":
            PARSER.parse_args([*words[1:], "--json"])


def test_tables_that_pages_name_are_there() -> None:
    names = {table.name for table in TABLES}
    for page in pages():
        for words in re.findall(r"gapless bench ([^`#\n]*)", page.read_text(encoding="utf-8")):
            assert {word for word in words.split() if not word.startswith("-")} <= names, page


def test_every_table_says_when_and_where_it_was_measured() -> None:
    for table in TABLES:
        is_dated = re.search(r"\d{1,2} \w+ 20\d\d, \w+ cores", table.measured) is not None
        assert is_dated or (table.needs_gpu and table.measured == "never run"), table.name


def test_a_figure_agrees_within_its_last_digit() -> None:
    figure = Figure("makespan_s", "925.2 us")
    assert figure.agrees(925.2e-6)
    assert figure.agrees(925.249e-6)
    assert not figure.agrees(925.3e-6)
    assert Figure("rows", "12,975").value == 12975
    assert Figure("gap", "7.6 %").agrees(0.0764)
    assert not Figure("gap", "7.6 %").agrees(0.0766)
    assert Figure("gap", "7.6 %").text(0.0812) == "8.1 %"


def test_noise_is_a_share_and_times_are_within_a_factor_of_two() -> None:
    assert Figure("x", "100", noise=0.1).agrees(110)
    assert not Figure("x", "100", noise=0.1).agrees(111)
    assert Figure("cpu_s", "2.0 s").agrees(3.9)
    assert Figure("cpu_s", "2.0 s").agrees(1.0)
    assert not Figure("cpu_s", "2.0 s").agrees(4.1)
    assert Figure("cpu_ms", "20 ms").agrees(0.030)
    assert not Figure("cpu_ms", "20 ms").agrees(0.041)


@pytest.mark.parametrize("printed", ["", "about 3", "3 parsecs", "1.2.3"])
def test_what_is_no_number_is_refused(printed: str) -> None:
    with pytest.raises(InputError, match="figure x: must be a number"):
        Figure("x", printed)


def test_a_row_is_run_and_compared() -> None:
    found = only(FIELD)
    assert found.values == (286.0, 306.0)
    assert not found.differs
    wrong = Found(Row(FIELD.label, FIELD.command, (Figure("makespan_s", "285"), FIELD.figures[1])), found.values)
    assert wrong.differs
    assert [figure["agrees"] for figure in wrong.data["figures"]] == [False, True]


def test_a_proof_that_there_is_no_plan_is_an_answer() -> None:
    asked = "gapless solve pipeline --profile gpt-2.5b --ranks 2 --micro-batches 2 --memory 1GB --hop 0 --quiet"
    found = only(Row("none", asked, (Figure("least_memory_bytes", "86.54 GB"),)))
    assert not found.error
    assert not found.differs


def test_a_command_that_fails_differs_and_says_why() -> None:
    found = only(Row("none", "gapless solve cupcake --profile nowhere.json", FIELD.figures))
    assert found.differs
    assert found.error.startswith("exit code 2: gapless: error:")


def test_a_command_whose_extra_is_missing_is_left_out_and_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.installation.evidence.declared_extras", lambda: (Extra("torch", {"torch": None}),))
    found = only(Row("CNN", "gapless validate regimes --model train:net", (Figure("overlap", "1"),)))
    assert found.values is None
    assert not found.error
    assert re.search(r"it needs what is not installed: pip install '.*\[torch\]'", found.left_out)


def test_an_answer_without_the_figure_differs() -> None:
    found = only(Row("none", "gapless bench --list", (Figure("makespan_s", "1"),)))
    assert "lacks one of makespan_s" in found.error


def test_what_a_row_needs_is_made_in_its_folder() -> None:
    solve = "gapless solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 2 --micro-batches 2 --quiet -o plan.json"
    found = only(Row("none", "gapless check plan.json", (Figure("makespan_s", "74"),), before=(solve,)))
    assert found.values == (74.0,)


def test_rows_of_a_benchmark_are_those_that_it_writes() -> None:
    answer = _Answer(
        {"speeds": {"a, 1": {"step_ms": 1.5, "cells": "7.5 / 7.3 (0.7)", "time_s": 0.002, "gap": "16.4%"}}}
    )
    figures = (
        Figure("step_ms", "1.5 ms"), Figure("cells", "7.5"), Figure("cells.1", "7.2"), Figure("time_s", "2.0 ms"),
        Figure("gap", "16.4 %"),
    )  # fmt: skip
    found = _held(Row("a", "pytest x", figures, written=("speeds", "a, 1")), answer)
    assert [figure["agrees"] for figure in found.data["figures"]] == [True, True, False, True, True]
    assert "lacks one of" in _held(Row("a", "pytest x", figures, written=("speeds", "b")), answer).error


@pytest.mark.thorough
def test_a_benchmark_is_run_once_for_all_its_rows() -> None:
    table = next(table for table in TABLES if table.name == "monet-sizes")
    found = rerun(table.rows, threading.Event())
    assert found is not None
    assert [each.differs for each in found] == [False] * len(table.rows)


def test_a_stop_ends_a_row_without_an_answer() -> None:
    stop = threading.Event()
    stop.set()
    assert rerun([FIELD], stop) is None


def test_a_benchmark_that_passes_holds() -> None:
    found = only(Row("none", "pytest tests/report/test_text.py", ()))
    assert found.values == ()
    assert not found.left_out
    assert not found.differs


def test_a_benchmark_that_finds_no_test_differs() -> None:
    found = only(Row("none", "pytest tests/report/test_text.py -k nothing_is_called_so", ()))
    assert found.error.startswith("exit code 5")
    assert found.differs


@pytest.mark.thorough
def test_a_benchmark_that_fails_says_which_test_and_why(tmp_path: Path) -> None:
    failing = tmp_path / "test_failing.py"
    failing.write_text("def test_two_is_one() -> None:\n    assert 2 == 1\n")
    found = only(Row("none", f"pytest {failing}", ()))
    assert found.error.startswith("exit code 1: FAILED")
    assert "test_two_is_one - assert 2 == 1" in found.error
