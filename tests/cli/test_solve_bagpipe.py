"""`planwright solve bagpipe`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planwright.cli.main import main

SMALL = ["--trace", "zipf", "--table-rows", "50,400", "--examples", "300", "--trainers", "4", "--batch-size", "30"]


def test_the_json_object_holds_totals_and_medians(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "bagpipe", *SMALL, "--lookahead", "3", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = ("partition_cost", "fetched_rows", "sync_now_rows", "sync_later_rows", "evicted_rows", "partition_ms")
    assert all(name in found and name in found["median"] for name in names)
    assert found["valid"]
    assert found["batches_planned"] == 10
    assert found["makespan_s"] == found["objective_s"]
    assert found["cache_rows_peak"] > 0
    assert found["lookahead_examples_per_s"] > 0


def test_a_batch_size_that_the_trainers_do_not_divide_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "bagpipe", *SMALL[:-1], "31", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"]


def test_more_trainers_than_examples_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trace", "zipf", "--table-rows", "9", "--examples", "6", "--trainers", "4", "--batch-size", "3"]
    assert main(["solve", "bagpipe", *arguments, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cache-rows", "5"], "cache_rows must hold the distinct ids of a batch"),
        (["--objective", "paperr"], "did you mean 'paper'?"),
        (["--ownership", "mine"], "ownership: must be one of first-touch, hash, got 'mine'"),
        (["--objective", "fetches", "--method", "lp"], "lp is for the paper's objective"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", "bagpipe", *SMALL, *arguments, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_negative_ids_and_ragged_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    negative, ragged = tmp_path / "negative.npy", tmp_path / "ragged.csv"
    np.save(negative, np.array([[1, 2], [3, -4]]))
    ragged.write_text("a,b\n1,2\n3\n")
    for file, options in ((negative, []), (ragged, ["--columns", "a,b"])):
        arguments = ["--trace", str(file), *options, "--trainers", "2", "--batch-size", "1", "--quiet"]
        assert main(["solve", "bagpipe", *arguments]) == 2
        error = capsys.readouterr().err
        assert file.name in error
        assert len(error.strip().splitlines()) == 1
