"""What a run has measured: its file, the interval of a median, and the report of the plan."""

from __future__ import annotations

import hashlib
import json
from math import comb
from pathlib import Path

import pytest
from calls import run
from little import LITTLE

import gapless
from gapless.encodings.taccl import Chunked
from gapless.errors import InputError
from gapless.io.formats.measured_file import Measured, median_interval, read_measured, write_measured
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

MEASURED = Measured("00", "2026-01-01T00:00:00+00:00", "gloo", 4, 1e-3, 2e-3, (1.5e-3, 1e-3, 2e-3), (3e-3, 6e-3, 2e-3))


def test_the_interval_has_the_median_as_often_as_it_says() -> None:
    median, low, high, confidence = median_interval([float(k) for k in range(9)])
    assert (median, low, high) == (4.0, 1.0, 7.0)
    assert confidence == pytest.approx(1 - 2 * (comb(9, 0) + comb(9, 1)) / 2**9)


def test_few_values_lie_between_the_least_and_the_most() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0, 0.75)
    assert median_interval([5.0]) == (5.0, 5.0, 5.0, 0.0)


def test_what_was_measured_once_has_no_interval() -> None:
    once = Measured("0" * 64, "2026-01-01T00:00:00+00:00", "gloo", 2, 0.5, None, (0.25,), ())
    assert once.rows()[1] == ("measured", "250 ms (measured once)")


@pytest.mark.parametrize("measured", [MEASURED, Measured("00", "2026", "mpi", 2, 1.0, None, (1.0,), ())])
def test_a_file_comes_back_as_it_was(tmp_path: Path, measured: Measured) -> None:
    write_measured(tmp_path / "measured.json", measured)
    assert read_measured(tmp_path / "measured.json") == measured


def test_the_ratio_is_that_of_the_medians() -> None:
    assert MEASURED.ratio == pytest.approx(2.0)
    assert dict(MEASURED.rows())["ratio"] == "2.00 times as fast as the library"


def test_nothing_measured_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    write_measured(path, MEASURED)
    path.write_text(json.dumps({**json.loads(path.read_text()), "measured_times_s": []}))
    with pytest.raises(InputError, match="measured_times_s"):
        read_measured(path)


def test_a_report_has_what_was_measured_of_its_plan_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, path, page = (str(tmp_path / name) for name in ("plan.json", "measured.json", "report.html"))
    problem = Chunked.of(load_topology("ring:3"), "allgather", 12_000)
    gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).save(plan)
    write_measured(path, MEASURED)
    words = ("report", plan, "--measured", path, "--no-pictures", "-o", page)
    code, _, err = run(capsys, *words)
    assert code == 2
    assert f"{path}: plan_sha256: must be that of {plan}; another plan was measured, or it has changed" in err
    digest = hashlib.sha256(Path(plan).read_bytes()).hexdigest()
    write_measured(path, Measured(digest, *list(vars(MEASURED).values())[1:]))
    assert run(capsys, *words)[0] == 0
    text = Path(page).read_text()
    assert "Measured on 4 ranks over gloo" in text
    assert "2.00 times as fast as the library" in text
