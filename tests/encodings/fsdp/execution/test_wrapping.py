"""What FSDP2 makes of plans, and of what is done today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from small_steps import FREE, a_step, costs_of

import gapless
from gapless.cli.main import main
from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.execution.wrapping import costs_of as costs_of_plan
from gapless.encodings.fsdp.execution.wrapping import order_of, wrapping_of
from gapless.encodings.fsdp.search.baselines import BUILDERS
from gapless.encodings.fsdp.search.precision import with_precisions
from gapless.encodings.fsdp.search.shared import best_grouped, starts_of
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Wrapping, read_fsdp2
from gapless.io.plan import read_plan

FOUR = costs_of([2, 3, 1, 4], [3] * 4, [5] * 4)


def decided(costs: Costs, order: Order | None) -> ShardedDecision:
    assert order is not None
    order = with_precisions(costs, order)
    names = tuple(f"layer{k}" for k in range(costs.layers))
    return ShardedDecision(names, order.collectives, order.holds)


def wrapped(costs: Costs, order: Order | None) -> Fsdp2Wrapping:
    return wrapping_of(decided(costs, order), costs, "small")


@pytest.mark.parametrize("name", ["fsdp2", "last-kept", "kept", "saturated"])
def test_what_is_done_today_runs_as_it_is_planned(name: str) -> None:
    decision = decided(FOUR, BUILDERS[name](FOUR))
    assert order_of(wrapping_of(decision, FOUR, "small")) == decision.order


def test_fsdp2s_default_gathers_one_ahead() -> None:
    wrapping = wrapped(FOUR, BUILDERS["fsdp2"](FOUR))
    assert [group.forward_prefetch for group in wrapping.groups] == [(1,), (2,), (3,), ()]
    assert [group.backward_prefetch for group in wrapping.groups] == [(), (0,), (1,), (2,)]
    assert not any(group.kept for group in wrapping.groups)
    assert wrapping.scatters_in_flight == 1


@examples(100)
@given(
    a_step(most_layers=6, least_backward=0, takes_when_begun=True)
    | a_step(most_layers=4, takes_when_begun=True, is_two_level=True, has_replicas=True)
)
def test_fsdp2_runs_every_plan_as_it_is(costs: Costs) -> None:
    for found in best_grouped(costs, starts_of(costs), 2000, 8, FREE):
        decision = decided(costs, found)
        assert order_of(wrapping_of(decision, costs, "small", 2)) == decision.order


def test_an_order_that_fsdp2_cannot_have_is_refused() -> None:
    """Layer 1's gather waits for layer 0's backward pass to begin, which it can't."""
    costs = costs_of([1, 1], [1, 1], [1, 1])
    order = Order(
        (
            *(Collective(Kind.FORWARD, k, k, kept=True) for k in (0, 1)),
            *(Collective(Kind.SCATTER, k, k) for k in (1, 0)),
        ),
        (1, 0),
    )
    with pytest.raises(InputError, match="--executor fsdp2"):
        wrapped(costs, order)


def test_groups_of_their_own_are_refused() -> None:
    order = Order(
        (Collective(Kind.FORWARD, 0, 1, kept=True), Collective(Kind.SCATTER, 1, 1), Collective(Kind.SCATTER, 0, 0)),
        (0, 0),
    )
    with pytest.raises(InputError, match="--executor fsdp2"):
        wrapped(costs_of([1, 1], [1, 1], [1, 1]), order)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    for name, precisions in (("plan", ["--gather", "bf16"]), ("fp8", ["--gather", "fp8"])):
        options = ["--profile", "gpt:layers=4,hidden=1024", "--ranks", "8", "--bandwidth", "5GB/s", *precisions]
        plan = str(folder / f"{name}.json")
        assert main(["solve", "fsdp", *options, "--memory", "1GB", "--method", "last-kept", "--quiet", "-o", plan]) == 0
    return folder


def test_a_plan_says_what_its_question_costs(plans: Path) -> None:
    costs = costs_of_plan(read_plan(plans / "plan.json"))
    problem = gapless.fsdp.problem(profile="gpt:layers=4,hidden=1024", ranks=8, bandwidth="5GB/s", memory="1GB").costs
    assert costs.parameters.tolist() == problem.parameters.tolist()
    assert costs.backward_s.tolist() == problem.backward_s.tolist()
    assert (costs.gathers_s, costs.scatters_s) == (problem.gathers_s, problem.scatters_s)
    assert (costs.latency_s, costs.memory_bytes) == (problem.latency_s, problem.memory_bytes)
    assert costs.takes_when_begun


def test_an_export_has_what_fully_shard_takes(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = plans / "wrapping.json"
    assert main(["export", str(plans / "plan.json"), "--format", "fsdp2", "-o", str(out)]) == 0
    assert "6 groups, a step of" in capsys.readouterr().out
    data, wrapping = json.loads(out.read_text()), read_fsdp2(out)
    assert [group["reshard_after_forward"] for group in data["groups"]] == [True] * 5 + [False]
    assert data["groups"][1]["forward_prefetch"] == data["torchtitan_buckets"][2]
    assert {(group.gather, group.scatter) for group in wrapping.groups} == {("bf16", "fp32")}
    assert [name for bucket in data["torchtitan_buckets"] for name in bucket] == list(wrapping.layer_names)


def test_what_fsdp2_has_no_precision_for_is_refused(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(plans / "fp8.json"), "--format", "fsdp2", "-o", str(plans / "never.json")]) == 2
    assert "gather: FSDP2 has fp32 and bf16, got fp8; solve without it, see --gather" in capsys.readouterr().err
    assert not (plans / "never.json").exists()
