"""Plans run by torch.distributed.pipelining on four processes, beside one process. Without torch these are skipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gloo_ranks import run_ranks
from pipeline_plans import baseline_plan, errors_table, gpt_profile
from pipeline_ranks import leave_task, program_on, run_tasks, task_of

from gapless.encodings.pipeline.execution.copies import copies_of
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.torch.pipeline.run import RanksRun, Task, compared

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = (16, 32)
"""Rows and columns of what the small GPT sends: positions, hidden."""
COMPRESSED = {(hop, m): 1 + m % 2 for hop in range(3) for m in range(4, 8)}
"""The last half of the micro-batches, at rank 2 and in half precision in turn."""


OFFLOADED: dict[str, dict[str, Any]] = {
    "1f1b on hosts": {"in_flight": 2},
    "zb-h1 on hosts": {"memory": 15000, "message_memory": "free"},
    "1f1b again, on hosts": {"memory": 8200, "message_memory": "free"},
}
"""Memory in which not all that micro-batches keep has room."""


@dataclass(frozen=True)
class Ran:
    """A plan, and what became of it."""

    program: Program
    task: Task
    found: RanksRun


def asked(
    name: str,
    blocks: int,
    form: str,
    modes: bool = False,
    propagates: bool = False,
    recomputes: bool = False,
    policies: tuple[str, ...] = (),
    hosts: dict[str, Any] | None = None,
) -> tuple[Program, Task]:
    """A baseline's plan for a GPT with so many blocks, and the task that it is for ranks. `hosts`: the memory of
    ranks that offload."""
    extra = {"compression": errors_table("rank 2", "float16"), "error_budget": 1.0} if modes else {}
    extra |= {} if hosts is None else {"offload": 1e6, **hosts}
    plan = baseline_plan(name, hop_modes=COMPRESSED if modes else {}, profile=gpt_profile(blocks, SHAPE),
                         recomputes=recomputes, policies=policies, **extra)  # fmt: skip
    program = program_of(plan)
    copies = copies_of(plan.schedule, program.order, program.offloaded)
    return program, task_of(program, blocks, form, propagates, copies)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    folder = tmp_path_factory.mktemp("ranks")
    tasks = {
        "1f1b": asked("1f1b", 4, "compute"),
        "zb-h1": asked("zb-h1", 4, "communication"),
        "zb-v": asked("zb-v", 6, "communication"),
        "interleaved": asked("interleaved-1f1b", 6, "compute"),
        "1f1b again": asked("1f1b", 4, "compute", recomputes=True),
        "1f1b layers": asked("1f1b", 4, "compute", policies=("input keep", "input keep", "", "")),
        "zb-h1 again": asked("zb-h1", 4, "communication", recomputes=True),
        "zb-v again": asked("zb-v", 6, "compute", recomputes=True),
        "compressed": asked("zb-h1", 4, "compute", modes=True),
        "propagated": asked("zb-h1", 4, "communication", modes=True, propagates=True),
    }
    for name, hosts in OFFLOADED.items():
        form = "communication" if "zb" in name else "compute"
        tasks[name] = asked(name.split()[0], 4, form, recomputes="again" in name, hosts=hosts)
    for name, (ranks, form) in ANYWHERE.items():
        program = program_on(ranks, (1, 2, 3, 4, 5, 7), 4, seed=len(name))
        tasks[name] = program, task_of(program, 6, form)
    for name, (program, task) in tasks.items():
        leave_task(folder / name, task, program)
    found = run_ranks(run_tasks, 4, folder)
    return {
        name: Ran(program, task, compared(task.load(), task.micro_batches, [rank[name] for rank in found]))
        for name, (program, task) in tasks.items()
    }


ANYWHERE = {
    "a wave": ((0, 1, 2, 3, 3, 2, 1), "compute"),
    "anywhere": ((2, 0, 0, 3, 1, 0, 2), "compute"),
    "anywhere, with messages": ((1, 3, 1, 0, 2, 2, 3), "communication"),
}
"""Stages on ranks as no placement has them, and the form of the file."""


@pytest.mark.parametrize("name", ANYWHERE)
def test_stages_on_any_ranks_find_the_gradients_of_one_process(ran: dict[str, Ran], name: str) -> None:
    found = ran[name].found
    assert found.gradients == found.equal == 5 + 12 * 6
    assert found.losses == 4


AGAIN = ["1f1b again", "1f1b layers", "zb-h1 again", "zb-v again"]


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "interleaved", *AGAIN, *OFFLOADED])
def test_gradients_and_losses_are_those_of_one_process_bit_by_bit(ran: dict[str, Ran], name: str) -> None:
    found, blocks = ran[name].found, ran[name].task.defaults["layers"]
    assert found.gradients == found.equal == 5 + 12 * blocks  # 53 of four blocks
    assert found.losses == 8
    assert found.error == 0.0


def test_stages_that_run_again_keep_less(ran: dict[str, Ran]) -> None:
    whole, again = ran["1f1b"].found, ran["1f1b again"].found
    for count, less, more in zip(again.in_flight, again.kept_bytes, whole.kept_bytes, strict=True):
        assert less < more if count > 1 else less == more, "the one that is run again has all of it"
    for name in ("zb-h1", "zb-v"):  # where all is kept from the input's gradient to the weights'
        assert sum(ran[f"{name} again"].found.kept_bytes) < sum(ran[name].found.kept_bytes)


def test_ranks_keep_less_of_what_is_on_hosts(ran: dict[str, Ran]) -> None:
    for name in OFFLOADED:
        found, whole = ran[name], ran[name.replace(",", "").replace(" on hosts", "")].found
        here = [[each for each in found.program.offloaded if each.stage == rank] for rank in range(4)]
        assert any(here)
        for rank, less, more in zip(here, found.found.kept_bytes, whole.kept_bytes, strict=True):
            assert less < more if rank else less == more


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "interleaved", "compressed", *AGAIN, *OFFLOADED])
def test_micro_batches_in_flight_and_bytes_sent_are_the_replays(ran: dict[str, Ran], name: str) -> None:
    assert ran[name].found.in_flight == ran[name].program.in_flight
    assert ran[name].found.sent_bytes == ran[name].program.sent_bytes
    assert ran[name].task.load().boundary_bytes(ran[name].task.cut, 8) == ran[name].program.boundary_bytes


def test_compression_sends_less_and_spoils_gradients_but_no_losses(ran: dict[str, Ran]) -> None:
    plain, compressed = ran["zb-h1"].found, ran["compressed"].found
    message = 4 * 16 * 32
    sent = (0, *[4 * message + 2 * (4 * 2 * (16 + 32)) + 2 * message // 2] * 3)
    assert plain.sent_bytes == (8 * message, 16 * message, 16 * message, 8 * message)
    assert compressed.sent_bytes == tuple(
        more if rank == 0 else more - 8 * message + sent[rank] for rank, more in enumerate(plain.sent_bytes)
    )
    assert compressed.losses == 8
    assert 0.0 < compressed.error < 1.0
    assert compressed.equal == 3, "those of the head, which gets no gradient from another stage"


def test_error_propagation_is_measured_and_sends_the_same_bytes(ran: dict[str, Ran]) -> None:
    assert ran["propagated"].found.sent_bytes == ran["compressed"].found.sent_bytes
    assert ran["propagated"].found.error != ran["compressed"].found.error
