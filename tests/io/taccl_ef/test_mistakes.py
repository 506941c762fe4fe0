"""Every kind of single mistake, at many places of several sound programs, is refused for its reason, and soon."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from broken_programs import MISTAKES
from hand_made_collectives import (
    pairs_reducescatter,
    relayed_alltoall,
    ring_allgather,
    ring_allreduce,
    ring_reducescatter,
    taker,
    tree_allreduce,
)
from program_edits import Broken

from gapless.errors import InputError
from gapless.io.taccl_ef import Program, judge, lower, parse_xml, xml_text

PROGRAMS: dict[str, Callable[[], Program]] = {
    "allgather": lambda: lower(*ring_allgather(4, 2)[::-1], fuse=False),
    "allgather-fused": lambda: lower(*ring_allgather(5, 2)[::-1], placement="both"),
    "reducescatter": lambda: lower(*pairs_reducescatter(4, 2)[::-1], runtime="executor"),
    "reducescatter-fused": lambda: lower(*ring_reducescatter(4, 2)[::-1], placement="both", runtime="executor"),
    "allreduce": lambda: lower(*ring_allreduce(4, 2)[::-1], fuse=False),
    "allreduce-fused": lambda: lower(*ring_allreduce(4, 2)[::-1]),
    "allreduce-tree": lambda: lower(*tree_allreduce(6, 1, root=2)[::-1]),
    "alltoall": lambda: lower(*relayed_alltoall(6)[::-1]),
}
PLACES = 10
"""Places of each program where each mistake is made, evenly spread."""
PATIENCE_S = 60


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    return {name: build() for name, build in PROGRAMS.items()}


@pytest.fixture(autouse=True)
def _no_hang():
    """A check that does not come back fails its test instead of stopping the suite."""

    def give_up(*_):
        raise TimeoutError(f"a broken program was not judged within {PATIENCE_S} s")

    old = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def refusals(broken: Broken) -> list[str]:
    """The rules that `gapless check` finds broken, or the reader's message; empty where it accepts."""
    try:
        program, warnings = parse_xml(broken if isinstance(broken, str) else xml_text(broken), "f.xml")
        return [problem.rule for problem in judge(program, taker(program.coll), warnings=tuple(warnings)).problems]
    except InputError as error:
        return str(error).splitlines()


def test_the_sound_programs_are_valid(programs):
    for program in programs.values():
        assert judge(program, taker(program.coll)).summary().count(": valid, executed") == 1
    types = {
        step.type for program in programs.values() for gpu in program.gpus for b in gpu.threadblocks for step in b.steps
    }
    assert types == {"s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "nop"}


def test_there_are_at_least_41_kinds_of_mistakes():
    assert len(MISTAKES) >= 41


@pytest.mark.thorough(but=("wrong", "swapped"))
@pytest.mark.parametrize("title", MISTAKES)
def test_each_kind_of_mistake_is_refused_for_its_reason_wherever_it_is_made(programs, title):
    change, reason = MISTAKES[title]
    made = 0
    for name, program in programs.items():
        broken = list(change(program))
        for each in broken[:: max(1, len(broken) // PLACES)]:
            found = refusals(each)
            assert any(re.search(reason, refusal) for refusal in found), (name, found)
            made += 1
    assert made
