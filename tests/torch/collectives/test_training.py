"""A plan's ALLREDUCE under DDP: which plan sums a bucket, and training as with the library's sums."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from emulated_cluster import emulated_cluster, needs_cluster
from emulated_machines import one_cable
from emulated_ranks import TIMEOUT_S, command
from little import LITTLE

import gapless
from gapless.cli.main import main
from gapless.encodings.taccl import Chunked
from gapless.errors import InputError, RunError
from gapless.ir.collective import Collective, collective_by_name
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology
from gapless.torch.collectives.ddp import PlanState

SMALL = "train:gpt,layers=1,hidden=32"


class Doubling:
    """Stands for a plan among two ranks that have the same numbers; it fails where it sends nothing."""

    def __init__(self, collective: Collective, sent_bytes: int) -> None:
        self.collective, self.sent_bytes, self.rank = collective, sent_bytes, 0

    def __call__(self, given: Any) -> Any:
        if not self.sent_bytes:
            raise RunError("message to or from rank 1: gone")
        assert given.numel() % len(self.collective.inputs[0]) == 0
        return given + given


def solved(topology: Topology, path: Path) -> Path:
    gapless.solve(Chunked.of(topology, "allreduce", 64_000), SolveOptions(gap=0.1), LITTLE).save(str(path))
    return path


def trained(plan: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    words = ["run", "taccl", "--plan", str(plan), "--model", SMALL, "--steps", "4", "--anyway", "--json", *more]
    assert main(words) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_bucket_of_any_length_gets_the_mean_by_the_plan_of_its_size() -> None:
    allreduce = collective_by_name("allreduce", 2, 3)
    plans: Any = {0: Doubling(allreduce, 1), 1000: Doubling(allreduce, 10), 50_000: Doubling(allreduce, 100)}
    state = PlanState(plans)
    for length in (7, 250, 12_499):
        buffer = torch.arange(length, dtype=torch.float32)
        assert state.reduce(buffer).wait() is buffer
        assert torch.equal(buffer, torch.arange(length, dtype=torch.float32))
    assert state.sent_bytes == 1 + 10 + 10


def test_a_plan_of_another_collective_and_none_are_refused() -> None:
    other: Any = Doubling(collective_by_name("allgather", 2), 1)
    with pytest.raises(InputError, match="must be one of allreduce, got one of allgather"):
        PlanState(other)
    with pytest.raises(InputError, match="at least one plan"):
        PlanState({})


def test_what_fails_in_a_sum_is_raised_where_it_is_waited_for() -> None:
    broken: Any = Doubling(collective_by_name("allreduce", 2, 3), 0)
    with pytest.raises(RunError, match="rank 1: gone"):
        PlanState(broken).reduce(torch.ones(3)).wait()


@pytest.mark.parametrize(
    ("collective", "more", "message"),
    [
        ("allgather", (), "a training sums gradients by a plan of allreduce, got allgather"),
        ("allreduce", ("-o", "measured.json"), "output: doesn't go with model"),
    ],
)
def test_what_a_training_cannot_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], collective: str,
    more: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    problem = Chunked.of(load_topology("ring:2"), collective, 64_000)
    gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).save("plan.json")
    assert main(["run", "taccl", "--plan", "plan.json", "--model", SMALL, "--anyway", *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_are_those_of_the_librarys_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str], ranks: int) -> None:
    found = trained(solved(load_topology(f"ring:{ranks}"), tmp_path / "plan.json"), capsys)
    assert found["ranks"] == ranks
    assert found["apart"] < 1e-5
    assert found["plan_losses"][-1] < found["plan_losses"][0]
    if ranks == 2:  # of two numbers the sum is the same either way
        assert found["plan_losses"] == found["library_losses"]


@pytest.mark.thorough
@needs_cluster
def test_a_training_on_two_nodes_with_one_cable_each_has_the_same_losses(tmp_path: Path) -> None:
    with emulated_cluster(one_cable(2, 2)) as cluster:
        words, environment = command(solved(cluster.topology, tmp_path / "plan.json"), 1)
        words = [*words, "--model", SMALL, "--steps", "3", "--anyway", "--quiet"]
        ended = cluster.run(words, TIMEOUT_S, environment)
    assert [one.code for one in ended] == [0] * 4, ended[0].out
    assert sys.executable == words[0]
    found = json.loads(ended[0].out.splitlines()[-1])
    assert found["apart"] < 1e-5
    assert len(found["plan_times_s"]) == len(found["library_times_s"]) == 3
