"""What is written in LP format reads back as the same model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.model import Model
from gapless.model.lp import legal_names, lp_text, number, write_lp
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model


def test_the_text_is_the_readable_model() -> None:
    model = Model("a small\nmodel")
    take = model.binaries("take", 3, labels=["c3->r0", "c3->r1", "c4->r0"])
    count = model.integers("count", upper=np.inf)
    time = model.continuous("time", 2, lower=np.array([-np.inf, -1.5]), upper=np.array([np.inf, -0.5]))
    model.add("capacity", (np.array([1.0, -2.5, 1e-7]), take), lower=-1, upper=4, labels=["0"])
    model.add("link", (1, count), (-1, time), lower=0.1, upper=0.1)
    model.add("nothing", (1, count))
    model.maximize((1, take), (-3, count), offset=-2.25)
    assert lp_text(model) == "\n".join([
        "\\ a small model",
        "Maximize",
        " obj: + take_c3__r0 + take_c3__r1 + take_c4__r0 - 3 count - 2.25",
        "Subject To",
        " capacity_0: + take_c3__r0 - 2.5 take_c3__r1 + 1e-07 take_c4__r0 <= 4",
        " capacity_0_lower: + take_c3__r0 - 2.5 take_c3__r1 + 1e-07 take_c4__r0 >= -1",
        " link: + count - time_0 - time_1 = 0.1",
        "Bounds",
        " 0 <= take_c3__r0 <= 1",
        " 0 <= take_c3__r1 <= 1",
        " 0 <= take_c4__r0 <= 1",
        " time_0 free",
        " -1.5 <= time_1 <= -0.5",
        "Generals",
        " count",
        "Binaries",
        " take_c3__r0 take_c3__r1 take_c4__r0",
        "End",
        "",
    ])  # fmt: skip


def test_names_are_legal_and_differ() -> None:
    names = ["x 1", "x-1", "x_1", "1st", "e12", "edge", "Free", "", "é", "x" * 300]
    legal = legal_names(names)
    assert legal[:9] == ["x_1", "x_1_2", "x_1_3", "_1st", "_e12", "edge", "_Free", "_", "__2"]
    assert len(legal[9]) == 200


def test_numbers_read_back_as_they_were() -> None:
    for value in (0.1, 1 / 3, 1e-300, 2.0**60, -3.0, 1e15 + 2, 123456789.125):
        assert float(number(value)) == value
    assert number(-3.0) == "-3"


def test_no_line_is_longer_than_readers_take() -> None:
    model = Model("wide")
    x = model.continuous("a_name_of_some_length", 200)
    model.add("sum", (np.linspace(0.1, 1, 200), x), upper=1)
    assert max(len(line) for line in lp_text(model).splitlines()) <= 100


def test_the_same_model_gives_the_same_bytes(random_model: Callable[[int], Model]) -> None:
    assert lp_text(random_model(3)) == lp_text(random_model(3))


@pytest.mark.parametrize("seed", range(40))
def test_highs_reads_back_the_same_model(
    seed: int, random_model: Callable[[int], Model], optimum_of_file: Callable[[Path], str | float], tmp_path: Path
) -> None:
    model = random_model(seed)
    write_lp(model, tmp_path / "model.lp")
    solution = solve_model(model, SolveOptions(threads=1))
    found = optimum_of_file(tmp_path / "model.lp")
    if solution.status is Status.OPTIMAL:
        assert found == pytest.approx(solution.objective)
    else:
        assert found == solution.status.value


def test_conditional_rows_and_disjunctions_are_written_as_plain_rows(
    optimum_of_file: Callable[[Path], str | float], tmp_path: Path
) -> None:
    model = Model("jobs")
    start, flag, end = model.integers("start", 2, 0, 20), model.binaries("flag"), model.integers("end", (), 0, 40)
    model.no_overlap("machine", [(start, [3, 4])])
    model.add("late", (1, start[:1]), lower=6, only_if=flag)
    model.add("set", (1, flag), lower=1)
    model.add("end", (1, end), (-1, start[:, None]), lower=np.array([3, 4]))
    model.minimize((1, end))
    write_lp(model, tmp_path / "jobs.lp")
    assert optimum_of_file(tmp_path / "jobs.lp") == pytest.approx(9)


def test_a_file_that_can_not_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^cannot write .*missing/model.lp: No such file or directory"):
        write_lp(Model("x"), tmp_path / "missing" / "model.lp")
    with pytest.raises(InputError, match=r"^cannot write .*: Is a directory"):
        write_lp(Model("x"), tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_an_old_file_stays_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "model.lp"
    target.write_text("old")
    target.chmod(0o640)

    def interrupt(self: Path, goal: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_lp(Model("new"), target)
    assert target.read_text() == "old"
    write_lp(Model("new"), target)
    assert target.read_text().startswith("\\ new")
    assert target.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [target]
