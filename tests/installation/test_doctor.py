"""The doctor finds what is there, and what is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.cli.main import main
from gapless.installation import doctor
from gapless.solvers.registry import BACKENDS

PLANNED = "a plan of taccl, replayed"


def test_doctor_finds_solvers_cores_and_versions_and_all_tests_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"]
    assert found["version"] == found["versions"]["gapless"] == gapless.__version__
    assert set(BACKENDS) <= {solver["name"] for solver in found["solvers"]}
    assert all(solver["takes"] for solver in found["solvers"])
    assert found["cores"] >= 1
    assert [test["name"] for test in found["tests"]] == [
        "solvers in one process",
        *BACKENDS,
        "a plan of taccl, replayed",
    ]
    assert all(set(extra) == {"complete", "needs"} for extra in found["extras"].values())


@pytest.mark.thorough
def test_text_is_for_a_bug_report_and_names_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"gapless {gapless.__version__}, ")
    for word in ("cores", "libraries", "highspy", "solvers", "extras", "self test", "all is well"):
        assert word in text
    assert str(Path.home()) not in text.replace("\n", " ") or str(Path.home()) == "/"
    assert os.getcwd() not in text


def test_crash_of_the_self_test_is_a_finding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, -11, "", "free(): invalid pointer\n")

    monkeypatch.setattr(doctor.subprocess, "run", crashed)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "BROKEN the process ended with signal 11: free(): invalid pointer" in out
    assert "something does not work" in out


def test_solver_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise ImportError("libhighs.so.1: undefined symbol")

    monkeypatch.setattr("gapless.solvers.registry.solve_model", fails)
    finding = doctor.try_solver("highs")
    assert not finding.is_good
    assert "undefined symbol" in finding.text


def test_extras_are_those_that_the_package_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy>=1.26",
        'matplotlib>=3.8; extra == "plot"',
        'no-such-thing-anywhere>=1; extra == "odd"',
        'tomli; python_version < "3.0" and extra == "odd"',
    ]
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(doctor, "distribution_version", lambda name: "1.0" if name == "matplotlib" else None)
    extras = {extra.name: extra for extra in doctor.declared_extras()}
    assert extras["plot"].is_complete
    assert extras["odd"].needs == {"no-such-thing-anywhere": None}
    assert not extras["odd"].is_complete


def test_command_alone_loads_no_solver() -> None:
    code = "import sys, gapless.installation.doctor; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"highspy", "ortools", "pulp", "matplotlib"} & set(loaded)
