"""Run files: what is read is what was written; what was changed is refused in one line, or caught by rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from changed_files import Arrays, arrays_of, as_meta, meta_of, mutate
from examples import share
from run_consistency import complaints

import gapless
from gapless.checker import Report, Rule, check
from gapless.encodings.bagpipe import Cluster, Planning, Problem
from gapless.encodings.bagpipe.lowering.actions import EVERYWHERE, NOT_FETCHED, SHARED, SYNC_NOW
from gapless.encodings.bagpipe.problem import RunDecision
from gapless.encodings.bagpipe.run.file import TIMES, read_run, write_run
from gapless.errors import InputError
from gapless.io.plan import plan_text
from gapless.options import SolveOptions
from gapless.profiles.traces.generators import zipf_trace
from gapless.recipe import Result
from gapless.result import read_saved

TRAINERS = 3
W = "00000000/"
"""The folder of the only window."""
MUTATIONS = share(500)


@pytest.fixture(scope="module")
def result() -> Result:
    planning = Planning(TRAINERS, 24, lookahead=1, batches=8)
    return gapless.solve(Problem(zipf_trace((40, 300, 5), 1.1, 240, 3), planning, Cluster(TRAINERS, pass_examples=8)))


@pytest.fixture(scope="module")
def saved(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run.npz"
    write_run(path, result.plan)
    return path


def test_what_is_read_is_what_was_written(result: Result, saved: Path) -> None:
    assert plan_text(read_run(saved)) == plan_text(result.plan)
    assert check(read_run(saved).schedule).makespan_s == result.report.makespan_s


def test_the_same_run_gives_the_same_arrays(result: Result, saved: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "again.npz", result.plan)
    first, second = arrays_of(saved), arrays_of(tmp_path / "again.npz")
    assert all(np.array_equal(first[name], second[name]) for name in first)


def put_end(change: Callable[[dict[str, Any]], object]) -> Callable[[Arrays], None]:
    def change_end(arrays: Arrays) -> None:
        end = meta_of(arrays, "end")
        change(end)
        arrays["end"] = as_meta(json.dumps(end))

    return change_end


def test_a_decision_is_saved_and_read_as_typed_data(result: Result, saved: Path, tmp_path: Path) -> None:
    decision = gapless.load(saved).decision
    assert decision == result.decision == RunDecision("lrpp-delayed", 8)
    old = changed(saved, tmp_path, put_end(lambda end: end.pop("decision")))
    assert gapless.load(old).decision is None
    assert RunDecision.of(read_run(old)) == decision


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda end: end["decision"].update(design="lru"), "decision: design: must be one of"),
        (lambda end: end["decision"].update(batches_planned=0), "decision: batches_planned: must be"),
        (lambda end: end["decision"].update(version=2), "decision: version: must be 1, got 2"),
        (lambda end: end.update(decision=[1]), "decision: must be"),
    ],
)
def test_what_is_no_decision_is_refused(
    saved: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    with pytest.raises(InputError, match=f"changed.npz: .*{says}"):
        read_saved(changed(saved, tmp_path, put_end(change)))


# -- changed on purpose ------------------------------------------------------------------------------------------------


def changed(saved: Path, tmp_path: Path, change: Callable[[Arrays], None]) -> Path:
    arrays = arrays_of(saved)
    change(arrays)
    np.savez(tmp_path / "changed.npz", **arrays)
    return tmp_path / "changed.npz"


def at(arrays: Arrays, **wanted: int) -> int:
    """The first row with these actions."""
    chosen = np.ones(len(arrays[W + "sync"]), dtype=np.bool_)
    for name, value in wanted.items():
        chosen &= arrays[W + name] == value
    assert chosen.any()
    return int(chosen.argmax())


def skip_a_synchronisation(arrays: Arrays) -> None:
    arrays[W + "sync"][at(arrays, sync=SYNC_NOW)] = 0


def evict_too_early(arrays: Arrays) -> None:
    arrays[W + "evicted"][at(arrays, sync=SYNC_NOW, evicted=0)] = 1


def leave_out_a_prefetch(arrays: Arrays) -> None:
    arrays[W + "fetched_by"][at(arrays, fetched_by=EVERYWHERE)] = NOT_FETCHED


def never_write_back(arrays: Arrays) -> None:
    last = np.cumsum(arrays[W + "rows"])[-2]
    arrays[W + "evicted"][last + np.flatnonzero(arrays[W + "private_to"][last:] == SHARED)[0]] = 0


def change_owner_and_users(arrays: Arrays) -> None:
    row = at(arrays, private_to=0, fetched_by=0)
    arrays[W + "private_to"][row] = 1
    arrays[W + "users"][row] = 0b01000000


def train_too_early(arrays: Arrays) -> None:
    arrays["spans"][TIMES.index("forward"), 0, 3] -= 1e-3


def train_too_fast(arrays: Arrays) -> None:
    arrays["spans"][TIMES.index("backward"), :, -1] -= 1e-3


def prefetch_too_early(arrays: Arrays) -> None:
    """Just before the rows of the batch before last are written back."""
    spans = arrays["spans"]
    written_s = min(spans[TIMES.index(name), 0, 2] for name in ("write_early", "write_late"))
    span = spans[TIMES.index("prefetch"), :, 4]
    span -= span[1] - written_s


def unbalance(arrays: Arrays) -> None:
    arrays[W + "trainer"][np.flatnonzero(arrays[W + "trainer"] == 0)[0]] = 1


def shrink_the_cache(arrays: Arrays) -> None:
    arrays["end"] = as_meta(json.dumps(json.loads(arrays["end"].tobytes()) | {"cache_rows": 10}))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (skip_a_synchronisation, Rule.INPUT_STALE),
        (prefetch_too_early, Rule.INPUT_STALE),
        (evict_too_early, Rule.INPUT_MISSING),
        (leave_out_a_prefetch, Rule.INPUT_LATE),  # late, because a later batch fetches the row
        (change_owner_and_users, Rule.INPUT_LATE),
        (train_too_early, Rule.INPUT_LATE),
        (train_too_fast, Rule.DURATION_TOO_SHORT),
        (never_write_back, Rule.REQUIRED_MISSING),
        (unbalance, Rule.MEMORY_EXCEEDED),
        (shrink_the_cache, Rule.MEMORY_EXCEEDED),
    ],
)
def test_a_broken_run_is_caught_by_rule(
    saved: Path, tmp_path: Path, change: Callable[[Arrays], None], rule: Rule
) -> None:
    report: Report = check(read_run(changed(saved, tmp_path, change)).schedule)
    assert rule in report.violation_counts, report.summary()


def test_a_private_row_with_a_second_user_is_refused(saved: Path, tmp_path: Path) -> None:
    def share(arrays: Arrays) -> None:
        arrays[W + "users"][at(arrays, private_to=0)] = 0b11000000

    with pytest.raises(InputError, match=r"users: row \d+ must be used by trainer 0 alone.* got \[0, 1\]"):
        read_run(changed(saved, tmp_path, share))


def test_another_owner_of_a_private_row_is_refused(saved: Path, tmp_path: Path) -> None:
    def hand_over(arrays: Arrays) -> None:
        arrays[W + "private_to"][at(arrays, private_to=0)] = 1

    with pytest.raises(InputError, match=r"users: row \d+ must be used by trainer 1 alone.* got \[0\]"):
        read_run(changed(saved, tmp_path, hand_over))


# -- not a run ---------------------------------------------------------------------------------------------------------


def put(name: str, value: object) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = np.array(value) if not isinstance(value, np.ndarray) else value

    return change


def put_first_step(value: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[W + "id_steps"] = arrays[W + "id_steps"].astype(np.uint64)
        arrays[W + "id_steps"][0] = value

    return change


def put_meta(**fields: object) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        meta = meta_of(arrays)
        for name, value in fields.items():
            inside = meta["cluster"] if name in meta["cluster"] else meta
            inside[name] = value
        arrays["meta"] = as_meta(json.dumps(meta))

    return change


def without(name: str) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        del arrays[name]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(W + "sync"), "array '00000000/sync' is missing"),
        (put(W + "rows", 3.5), "00000000/rows: must be integers in 1 dimensions, got float64 of shape ()"),
        (
            put(W + "rows", [2**62] * 8),
            "counts: must count the rows, 4611686018427387904 in batch 0, got",
        ),
        (put(W + "rows", [3]), "examples: must have one entry for each batch of the window, 1; got 8"),
        (put(W + "rows", np.empty(0, dtype=int)), "rows: must have one entry for each batch of the window, 1; got 0"),
        (put(W + "examples", [0] * 8), "examples: must be >= 1, got 0"),
        (
            put_first_step(2**64 - 1),
            "id_steps: must fit into int64, got 184467440737095",
        ),
        (put(W + "id_steps", [[1, 2]]), "id_steps: must be integers in 1 dimensions"),
        (put(W + "trainer", [-1] * 192), "trainer: must be in 0..2, got -1..-1"),
        (put(W + "users", np.zeros((5, 9), dtype=np.uint8)), "users: must have as many entries as the batches have"),
        (put(W + "users", np.zeros((5, 9))), "users: must be uint8 in 2 dimensions, got float64"),
        (put(W + "prefetch_after", [7] * 8), "prefetch_after: batch 0 must have one before it or -1, got 7"),
        (put("spans", np.full((9, 2, 8), np.nan)), "spans: must be finite"),
        (put("spans", np.zeros((9, 2, 3))), "spans: must be finite, of shape (9, 2, 8), got shape (9, 2, 3)"),
        (put("meta", as_meta("{}")), "meta: field 'format' is missing"),
        (put("meta", as_meta("[1]")), "meta: must be a JSON object"),
        (put("meta", as_meta('{"format')), "meta: not JSON"),
        (put_meta(version=1), "version: must be 3, got 1"),
        (put_meta(trainers="x"), "cluster: trainers: must be a whole number"),
        (put_meta(trainers=2), "share: must be one number for each of 2 trainers"),
        (put_meta(share=[-1, 2, 3]), "share[0]: must be a whole number in 0.."),
        (put_meta(row_bytes=2**60), "row_bytes: must be a whole number in 0..2147483648"),
        (put_meta(server_bytes_per_s=0), "cluster: server_bytes_per_s must be finite and > 0"),
        (put_meta(problem=3), "problem: must be a JSON object"),
        (put_meta(colour=1), "field 'colour' is unknown"),
    ],
)
def test_an_array_that_breaks_a_rule_is_one_line(
    saved: Path, tmp_path: Path, change: Callable[[Arrays], None], message: str
) -> None:
    path = changed(saved, tmp_path, change)
    with pytest.raises(InputError) as caught:
        read_run(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_ids_that_stand_twice_are_refused(saved: Path, tmp_path: Path) -> None:
    def repeat(arrays: Arrays) -> None:
        arrays[W + "id_steps"][1] = 0

    with pytest.raises(InputError, match="ids: must be at least one, each >= 0 and larger than the one before"):
        read_run(changed(saved, tmp_path, repeat))


def test_spans_that_end_before_they_start_are_refused(saved: Path, tmp_path: Path) -> None:
    def turn(arrays: Arrays) -> None:
        arrays["spans"][1, :, 2] = arrays["spans"][1, ::-1, 2]

    with pytest.raises(InputError, match="spans: forward of batch 2 must start before it ends"):
        read_run(changed(saved, tmp_path, turn))


def test_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.npz" for name in ("text", "empty", "one", "pickled", "other")}
    files["text"].write_text("no archive\n")
    files["empty"].write_bytes(b"")
    with files["one"].open("wb") as stream:
        np.save(stream, np.arange(3))
    np.savez(files["pickled"], meta=np.array([{}], dtype=object))
    np.savez(files["other"], ids=np.arange(3))
    for path in (*files.values(), tmp_path, tmp_path / "missing.npz"):
        with pytest.raises(InputError) as caught:
            read_run(path)
        assert str(path) in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def refusal(path: Path) -> str:
    """Why a file is refused; nothing if it is read and replayed, well or not."""
    try:
        schedule = read_run(path).schedule
    except InputError as error:
        return str(error)
    check(schedule)
    return ""


def test_random_changes_never_end_in_a_traceback(saved: Path, tmp_path: Path) -> None:
    """500 files with --thorough."""
    chance, target = Random(5), tmp_path / "mutated.npz"
    refusals = []
    for _ in range(MUTATIONS):
        mutate(saved, target, chance)
        refusals.append(refusal(target))
    assert all(not message or (str(target) in message and len(message.splitlines()) == 1) for message in refusals)
    assert 0 < refusals.count("") < MUTATIONS / 2


# -- another reader ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["replicated", "lrpp", "lrpp-delayed"])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_reader_made_from_the_documentation_finds_nothing(design: str, stopped: bool, tmp_path: Path) -> None:
    trace = zipf_trace((40, 300, 5), 1.1, 240, 3)
    planning = Planning(TRAINERS, 24, lookahead=3, batches=10, design=design)
    options = SolveOptions(on_progress=lambda progress: stopped and progress.done == 6 and options.stop.set())
    gapless.solve(Problem(trace, planning, Cluster(TRAINERS)), options).save(tmp_path / "run.npz")
    assert complaints(tmp_path / "run.npz", np.concatenate(list(trace.blocks()))) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (skip_a_synchronisation, "is read where it is missing or stale"),
        (evict_too_early, "is read where it is missing or stale"),
        (leave_out_a_prefetch, "is read where it is missing or stale"),
        (change_owner_and_users, "users aren't those of the trace"),
        (never_write_back, "is never written back"),
        (unbalance, "a trainer has more examples than its share"),
    ],
)
def test_that_reader_finds_what_the_replay_finds(
    saved: Path, tmp_path: Path, change: Callable[[Arrays], None], complaint: str
) -> None:
    trace_ids = np.concatenate(list(zipf_trace((40, 300, 5), 1.1, 240, 3).blocks()))
    assert complaints(saved, trace_ids) == []
    found = complaints(changed(saved, tmp_path, change), trace_ids)
    assert any(complaint in each for each in found), found
