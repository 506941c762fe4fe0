"""Kept replays: a second picture reads nothing and replays nothing, and nothing stale, foreign or forged is shown."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from small_plans import small_plan

from gapless.checker import inspection
from gapless.cli.main import main
from gapless.io import kept
from gapless.result import read_saved


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place to keep replays, where small plans are kept, too."""
    monkeypatch.setenv("GAPLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "LEAST_COPIES", 0)
    monkeypatch.setattr(kept, "LEAST_BYTES", 0)
    return tmp_path / "cache"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return small_plan("pipeline", tmp_path)


def plotted(plan: Path, *options: str) -> bytes:
    """The picture of a plan, which replays clean."""
    picture = plan.with_name("picture.svg")
    assert main(["plot", str(plan), "-o", str(picture), "--quiet", *options]) == 0
    return picture.read_bytes()


def never(*values: object) -> None:
    raise AssertionError("it is kept")


def test_a_second_picture_reads_no_plan_and_replays_nothing(
    folder: Path, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {kind: plotted(plan, "--kind", kind) for kind in ("memory", "gantt")}
    (file,) = folder.iterdir()
    assert file.name == f"{kept.name_of(plan)}.npz"
    monkeypatch.setattr("gapless.result.read_saved", never)
    monkeypatch.setattr(inspection, "judged", never)
    assert {kind: plotted(plan, "--kind", kind) for kind in first} == first


def test_what_a_replay_had_to_show_is_read_back(folder: Path, plan: Path) -> None:
    saved = read_saved(str(plan))
    seen = inspection.inspected(saved.schedule)
    assert kept.keep(kept.name_of(plan), plan, saved, seen)
    found = kept.find_kept(kept.name_of(plan))
    assert found is not None
    assert found.seen is not None
    assert found.seen.report == seen.report
    assert (found.plan.problem, found.plan.claim, found.plan.run) == (saved.problem, saved.claim, saved.run)
    for one, other in zip(found.seen.memory, seen.memory, strict=True):
        assert (one.time_s.tolist(), one.live_bytes.tolist()) == (other.time_s.tolist(), other.live_bytes.tolist())
    assert found.seen.waits.cause.tolist() == seen.waits.cause.tolist()
    assert found.plan.schedule.start_s.tolist() == saved.schedule.start_s.tolist()


@pytest.mark.thorough
def test_a_page_says_that_its_replay_is_an_earlier_one(folder: Path, plan: Path) -> None:
    pages = []
    for name in ("first.html", "second.html"):
        assert main(["report", str(plan), "-o", str(plan.with_name(name)), "--quiet"]) == 0
        pages.append(plan.with_name(name).read_text(encoding="utf-8"))
    words = f"of an earlier replay, kept as {kept.name_of(plan)[:12]} by the hash of the plan"
    assert [words in page for page in pages] == [False, True]
    assert ["Replayed and written by" in page for page in pages] == [True, False]
    assert [page.split("<footer>")[0] for page in pages[1:]] == [pages[0].split("<footer>")[0]]


def test_check_replays_whatever_is_kept(folder: Path, plan: Path) -> None:
    """Somebody puts the replay of a valid plan in the place of one that is not."""
    plotted(plan)
    data = json.loads(plan.read_text(encoding="utf-8"))
    data["schedule"]["start_s"][-1] = 0.0
    broken = plan.with_name("broken.json")
    broken.write_text(json.dumps(data), encoding="utf-8")
    (file,) = folder.iterdir()
    file.rename(folder / f"{kept.name_of(broken)}.npz")
    assert main(["plot", str(broken), "-o", str(plan.with_name("forged.svg")), "--quiet"]) == 0
    assert main(["check", str(broken), "--quiet"]) == 5


def test_another_plan_finds_nothing_and_one_that_is_not_valid_is_not_kept(folder: Path, plan: Path) -> None:
    data = json.loads(plan.read_text(encoding="utf-8"))
    data["schedule"]["start_s"][-1] = 0.0
    before = kept.name_of(plan)
    plan.write_text(json.dumps(data), encoding="utf-8")
    assert kept.name_of(plan) != before
    assert main(["plot", str(plan), "-o", str(plan.with_name("out.svg")), "--quiet"]) == 5
    assert not folder.exists() or not list(folder.iterdir())


def test_a_plan_that_changed_while_it_was_read_is_not_kept(folder: Path, plan: Path) -> None:
    name, saved = kept.name_of(plan), read_saved(str(plan))
    plan.write_text(plan.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert not kept.keep(name, plan, saved, None)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_in_which_others_may_write_is_neither_read_nor_written(folder: Path, plan: Path) -> None:
    plotted(plan)
    assert kept.find_kept(kept.name_of(plan)) is not None
    folder.chmod(0o777)
    assert kept.find_kept(kept.name_of(plan)) is None
    (file,) = folder.iterdir()
    file.unlink()
    plotted(plan)
    assert list(folder.iterdir()) == []


@pytest.mark.thorough("below")
@pytest.mark.parametrize("place", ["", "a file", "a file/below"])
def test_where_nothing_can_be_kept_pictures_are_drawn_all_the_same(
    place: str, folder: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("GAPLESS_CACHE", place and str(tmp_path / place))
    assert plotted(plan) == plotted(plan)
    assert not folder.exists()


@pytest.mark.thorough("half")
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file", b"{}"])
def test_what_cannot_be_read_is_made_again(content: bytes, folder: Path, plan: Path) -> None:
    first = plotted(plan)
    (file,) = folder.iterdir()
    whole = len(file.read_bytes())
    file.write_bytes(content)
    assert plotted(plan) == first
    assert len(file.read_bytes()) == whole


def test_the_oldest_goes_where_there_is_too_much(folder: Path, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    np.savez(folder / "old.npz", column=np.zeros(9))
    os.utime(folder / "old.npz", (0, 0))
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    plotted(plan)
    assert [file.name for file in folder.iterdir()] == [f"{kept.name_of(plan)}.npz"]
