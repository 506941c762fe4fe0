"""An installed selector: results are the library's, winners take their sizes and groups, the library all else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from gloo_ranks import run_ranks
from tuned_folders import tuned_folder
from tuned_ranks import LENGTHS, call_installed, call_otherwise, train

RANKS = 3
ALL = tuple(range(RANKS))
NAMES = ("allgather", "allreduce", "alltoall", "broadcast", "reduce", "reducescatter")


def test_results_are_the_librarys_for_lengths_that_chunks_divide_and_others(tmp_path: Path) -> None:
    tuned_folder(tmp_path / "tuned", RANKS, [(name, ALL, 40, 1000) for name in NAMES])
    for rank in run_ranks(call_installed, RANKS, tmp_path):
        assert rank["equal"]
        assert rank["restored"]
        for length in LENGTHS:
            taken, left = rank["counts"][length]
            for name in NAMES:
                shares = RANKS if name in ("alltoall", "reducescatter") else 1
                served = sum(40 <= length * shares * size <= 1000 for size in (4, 8, 8))
                assert (taken.get(name, 0), left.get(name, 0)) == (served, 3 - served), (name, length)


def test_calls_that_no_plan_is_for_go_to_the_library_and_groups_have_their_own(tmp_path: Path) -> None:
    wanted = [("allreduce", ALL, 1, 10**6), ("broadcast", ALL, 1, 10**6)]
    tuned_folder(tmp_path / "tuned", RANKS, [("allreduce", (0, 2), 400, 400), *wanted[1:]])
    tuned_folder(tmp_path / "other-ranks", 4, [])
    tuned_folder(tmp_path / "other-backend", RANKS, [], "nccl")
    changed = tuned_folder(tmp_path / "changed", RANKS, wanted[:1])
    (changed / "plans/0.json").write_text("{}")
    for number, rank in enumerate(run_ranks(call_otherwise, RANKS, tmp_path)):
        assert rank["values"] == [6.0, 2.0, 1.0, 2.0 if number == 1 else 4.0]
        assert rank["taken before"] == {}
        assert rank["taken"] == ({} if number == 1 else {"allreduce": 1})
        assert rank["twice"] == "install: a selector is installed already; call its uninstall() first"
        ranks, backend, changed_line, nowhere = rank["refused"]
        assert ranks.endswith("was tuned for 4 ranks over gloo, the process group has 3 over gloo")
        assert backend.endswith("was tuned for 3 ranks over nccl, the process group has 3 over gloo")
        assert "plans[0].sha256: must be that of plans/0.json, got another; tune again" in changed_line
        assert nowhere.endswith("nowhere: must be a folder that `gapless tune` wrote")


def test_a_model_trains_with_equal_losses_by_winners_and_library_together(tmp_path: Path) -> None:
    tuned_folder(tmp_path / "tuned", RANKS, [("allreduce", ALL, 2000, 100_000)])
    for rank in run_ranks(train, RANKS, tmp_path):
        assert rank["winners"] == pytest.approx(rank["library"], rel=1e-5)
        assert rank["taken"] >= 6
        assert rank["left"] >= 3
