"""What an export writes: for whom, with how many instances, in how many files."""

from __future__ import annotations

import pytest

import gapless
from gapless.encodings.taccl.programs.export import write_taccl_ef
from gapless.errors import InputError
from gapless.io.taccl_ef import parse_xml, read_program


@pytest.fixture(scope="module")
def plan():
    return gapless.taccl.solve("ring:4", size="64KB", chunks=1).plan


def test_instances_fall_back_to_the_most_that_fit_and_the_answer_says_so(plan, tmp_path):
    written = write_taccl_ef(tmp_path / "f.xml", plan.schedule, plan.problem, instances=40)
    assert written.instances == 32
    assert written.program.nchannels == 32
    assert "; 32 instances, the most that fit: taccl-ef: there are 32 channels, needed are 40" in written.summary()
    fits = write_taccl_ef(tmp_path / "f.xml", plan.schedule, plan.problem, instances=2)
    assert (fits.instances, fits.refusal) == (2, "")
    assert "the most that fit" not in fits.summary()


def test_what_one_instance_does_not_keep_is_refused(plan, tmp_path):
    with pytest.raises(InputError, match="multiprocessors"):
        write_taccl_ef(tmp_path / "f.xml", plan.schedule, plan.problem, instances=4, sm_count=1)
    assert not list(tmp_path.iterdir())


def test_a_ranks_own_file_is_what_it_reads_of_the_whole_one(plan, tmp_path):
    whole = write_taccl_ef(tmp_path / "f.xml", plan.schedule, plan.problem).program
    write_taccl_ef(tmp_path / "p.xml", plan.schedule, plan.problem, per_rank=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.xml", *(f"p.{rank}.xml" for rank in range(4))]
    assert read_program(tmp_path / "f.xml") == (whole, [])
    for rank, gpu in enumerate(whole.gpus):
        mine, _ = parse_xml((tmp_path / f"p.{rank}.xml").read_text(), "p")
        assert mine.gpus == (gpu,)
        assert (mine.ngpus, mine.nchunksperloop, mine.max_bytes) == (4, whole.nchunksperloop, whole.max_bytes)


def test_the_answer_says_which_calls_a_file_serves(plan, tmp_path):
    both = write_taccl_ef(tmp_path / "f.xml", plan.schedule, plan.problem, runtime="executor")
    assert both.summary().endswith("for calls out of place and in place")
    one = write_taccl_ef(tmp_path / "f.xml", plan.schedule, plan.problem)
    assert one.summary().endswith("for calls out of place")
