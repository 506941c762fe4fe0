"""Which file a runtime takes for a call: every comparison has a file that fails it, and what is taken does its work."""

from __future__ import annotations

import dataclasses

import pytest
from hand_made_collectives import CASES, ring_allgather

from gapless.errors import InputError
from gapless.io.taccl_ef import Call, Candidate, lower, run, select, served_placement
from gapless.io.taccl_ef.program import RUNTIMES

PROGRAM = lower(*ring_allgather(4, 2)[::-1], placement="both", runtime="executor", min_bytes=1024, max_bytes=8192)
CALL = Call("allgather", 4096, "float32", 4)


def file(path="a.xml", **changes):
    return Candidate(path, dataclasses.replace(PROGRAM, **changes))


def reason(candidate, call=CALL, runtime="executor"):
    found = select([candidate], call, runtime)
    (why,) = found.reasons
    assert (why is None) == (found.taken == 0)
    return why and why.rule


MISMATCHES = {
    "ranks": (file(), {"ranks": 8}, "ranks", "ranks"),
    "collective": (file(), {"collective": "broadcast"}, "collective", "collective"),
    "out of place": (file(outofplace=False), {}, "placement", "placement"),
    "in place": (file(inplace=False), {"in_place": True}, "placement", "placement"),
    "both placements": (file(), {}, None, "placement"),
    "too small": (file(inplace=False), {"size_bytes": 512}, "size", "size"),
    "the largest size": (file(inplace=False), {"size_bytes": 8192}, None, "size"),
    "too large": (file(inplace=False), {"size_bytes": 16384}, "size", "size"),
    "no whole chunks": (file(inplace=False, nchunksperloop=8), {"size_bytes": 4096 + 16}, "count", "count"),
    "a file that can't be read": (Candidate("a.xml", None, "a.xml:1: tabs"), {}, "load", "load"),
    "a file that breaks a rule": (file(nchannels=0), {}, "load", "load"),
    "the call": (file(inplace=False), {}, None, None),
}


@pytest.mark.parametrize("title", MISMATCHES)
def test_each_comparison_fails_by_its_name(title):
    candidate, changes, executor, original = MISMATCHES[title]
    call = dataclasses.replace(CALL, **changes)
    assert reason(candidate, call, "executor") == executor
    assert reason(candidate, call, "original") == original


def test_what_has_no_call_is_taken_by_number_only():
    program = lower(*CASES["gather-chain"]()[::-1], runtime="original")
    call = Call("gather", 4096, "float32", 4)
    why = select([Candidate("g.xml", program)], call, "original").reasons[0]
    assert why is not None
    assert why.message == "the original runtime has no call for gather, custom files go by number"


def test_the_original_runtime_refuses_alltoall_in_place():
    program = lower(*CASES["alltoall-pairs"]()[::-1])
    call = Call("alltoall", 4096, "float32", 4, in_place=True)
    why = select([Candidate("a.xml", program)], call, "original").reasons[0]
    assert why is not None
    assert why.rule == "placement"


def test_the_executor_goes_by_name_and_the_original_runtime_by_its_list():
    files = [file("x/b.xml", inplace=False), file("y/a.xml", inplace=False)]
    for runtime, first in (("executor", "y/a.xml"), ("original", "x/b.xml")):
        found = select(files, CALL, runtime)
        assert found.taken == 0
        assert found.tried[0].path == first
        assert [why and why.rule for why in found.reasons] == [None, "order"]


def test_the_original_runtime_keeps_four_files_of_those_that_load():
    wrong = {"inplace": False, "min_bytes": 8000}
    others = [file("bad.xml", nchannels=0), file("ranks.xml"), *(file(f"{n}.xml", **wrong) for n in range(4))]
    last = file("z.xml", inplace=False)
    found = select([*others[:1], *others[2:], last], CALL, "original")
    assert found.taken is None
    assert [why and why.rule for why in found.reasons] == ["load", "size", "size", "size", "size", "programs"]
    assert select([*others[:1], *others[2:5], last], CALL, "original").taken == 4
    assert select([*others[2:], last], CALL, "executor").taken == 4


def test_a_file_that_does_not_load_stops_the_executor_and_not_the_original_runtime():
    files = [file("a.xml", inplace=False), Candidate("b.xml", None, "b.xml:1: no text")]
    stopped = select(files, CALL, "executor")
    assert (stopped.taken, stopped.stopped_by) == (None, 1)
    assert all(why is not None and why.rule == "load" for why in stopped.reasons)
    assert select(files, CALL, "original").taken == 0


def test_a_size_must_be_whole_elements_of_every_rank():
    with pytest.raises(InputError, match="size: must be a multiple of 4 x 4 bytes of float32, got 4100"):
        Call("allgather", 4100, "float32", 4)
    assert Call("allreduce", 4100, "float32", 4).count == 1025


def test_only_one_runtime_chooses_at_a_time():
    with pytest.raises(InputError, match="runtime: must be one of executor, original, got 'both'"):
        select([file()], CALL, "both")


def can_be_served(collective, placement, target):
    """Whether one file can serve what is asked for, by what the runtimes offer and compare."""
    offered = {model.names.get(collective) for model in RUNTIMES[target]}
    placements = [None, "out-of-place"] if collective == "alltoall" else [None, "out-of-place", "in-place"]
    return len(offered) == 1 and None not in offered and (target == "executor" or placement in placements)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("placement", [None, "in-place", "out-of-place", "both"])
@pytest.mark.parametrize("target", ["executor", "original", "both"])
def test_every_export_loads_is_allocated_is_taken_and_does_its_work(name, placement, target):
    """By each runtime that it is for, for each kind of call that it claims; what can't be served is refused."""
    collective, schedule = CASES[name]()

    def export():
        served = served_placement(placement, collective.name, target)
        return lower(schedule, collective, placement=served, runtime=target)

    if not can_be_served(collective.name, placement, target):
        with pytest.raises(InputError, match=r"^(placement: original|runtime: (one file|executor knows))"):
            export()
        return
    program = export()
    for slots in (1, 8):
        assert run(program, collective, slots=slots).is_ok
    size_bytes = program.nchunksperloop * program.ngpus * 64
    claimed = [in_place for in_place, flag in ((False, program.outofplace), (True, program.inplace)) if flag]
    for model in RUNTIMES[target]:
        assert model.scratch_bytes(program) <= 2**32
        assert program.coll == model.names[collective.name]
        for in_place in claimed if program.coll != "custom" else ():  # custom files are called by number
            call = Call(collective.name, size_bytes, "float32", program.ngpus, in_place)
            assert select([Candidate("f.xml", program)], call, model.name).taken == 0
