"""Plans of calls in a folder: nothing is timed or solved again, and no plan is of another call.

Without torch these tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import kept_calls
import torch
from kept_calls import Small, counted, losses

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.torch import planned


def plan_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("call-*.json"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a first process has made."""
    made = tmp_path_factory.mktemp("first") / "new" / "plans"
    losses(made, [])
    return made


@pytest.fixture
def folder(tmp_path: Path, first: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(first, tmp_path / "plans"))


def test_nothing_is_solved_or_timed_again(folder: Path) -> None:
    lines: list[str] = []
    with counted() as work:
        again = losses(folder, lines)
    assert (work.solved, work.timed) == (0, 0)
    assert again == losses(None, [])
    (line,), (path,) = lines, plan_files(folder)
    assert line.startswith(f"took the plan from {path} for a call of [8, 6]: at most ")


@pytest.mark.thorough
def test_nothing_is_solved_or_timed_in_a_second_process(tmp_path: Path) -> None:
    command = [sys.executable, kept_calls.__file__, str(tmp_path / "plans")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]  # at once
    first = [json.loads(process.communicate(timeout=300)[0]) for process in both]
    third = json.loads(subprocess.run(command, capture_output=True, timeout=300, check=True).stdout)
    assert max(found["solved"] for found in first) > 0
    assert (third["solved"], third["timed"]) == (0, 0)
    assert third["losses"] == first[0]["losses"] == first[1]["losses"]


@pytest.mark.thorough(but=("operator", "budget"))
@pytest.mark.parametrize(
    "changed",
    [
        {"make": partial(Small, 14)},
        {"make": partial(Small, 12, torch.tanh)},
        {"budget": "0.98x"},
        {"options": SolveOptions(gap=0.5)},
    ],
    ids=["width", "operator", "budget", "options"],
)
def test_what_has_changed_is_solved_anew(folder: Path, changed: dict[str, object]) -> None:
    with counted() as work:
        losses(folder, [], **changed)
    assert work.solved == 1
    assert len(plan_files(folder)) == 2


def test_damaged_file_is_named_and_replaced(folder: Path) -> None:
    (path,) = plan_files(folder)
    path.write_text(path.read_text()[:-100])
    lines: list[str] = []
    with counted() as work:
        losses(folder, lines)
    assert work.solved == 1
    assert lines[0].startswith(str(path))
    assert lines[0].endswith("; planned anew, and the file is replaced")
    with counted() as work:
        losses(folder, [])
    assert work.solved == 0


def test_plan_under_the_name_of_another_is_not_taken(folder: Path) -> None:
    (path,) = plan_files(folder)
    lines: list[str] = []
    losses(folder, [], partial(Small, 14))
    (other,) = set(plan_files(folder)) - {path}
    path.write_bytes(other.read_bytes())
    with counted() as work:
        losses(folder, lines)
    assert work.solved == 1
    assert "key: must be" in lines[0]


def test_plan_that_can_not_be_written_still_runs(folder: Path) -> None:
    (path,) = plan_files(folder)
    path.unlink()
    path.mkdir()
    lines: list[str] = []
    losses(folder, lines)
    assert lines[1].startswith(f"cannot write {path}")
    assert lines[1].endswith("the plan is not kept")


def test_numbers_need_no_plan_of_their_own() -> None:
    eager, model = Small(), planned(Small(), "1.0x", report=lambda _: None)
    model.load_state_dict(eager.state_dict())
    with counted() as work:
        for step in range(2):
            for its in (eager, model):
                its.drop.p, its.temp = 0.1 + 0.4 * step, 1.0 + step
                torch.manual_seed(step)
                its(torch.randn(8, 6)).sum().backward()
    assert work.solved == 1
    assert len(model.forward.plans) == 2
    for one, own in zip(eager.parameters(), model.parameters(), strict=True):
        assert torch.equal(one.grad, own.grad)


def test_json_file_holds_times_alone(tmp_path: Path) -> None:
    losses(tmp_path / "ops.json", [])
    assert [path.name for path in tmp_path.iterdir()] == ["ops.json"]
    with counted() as work:
        losses(tmp_path / "ops.json", [])
    assert (work.solved, work.timed) == (1, 0)


def test_folder_that_can_not_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        planned(Small(), "1.0x", cache=tmp_path / "file" / "plans")
