"""Policies of recomputation: the curve of a stage, what it leaves out, and the choices that are tried."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import share
from tiny_pipelines import best_cost_s

from gapless.checker import check
from gapless.encodings.pipeline.bounds.policies import any_policy_s
from gapless.encodings.pipeline.cut import policies
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.policies import StagePolicy, are_all_choices, choices_of, curve_of, relaxed_of
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import EvenHops, Problem, problem
from gapless.encodings.pipeline.solve import planned
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile, Policy, read_pipeline_profile, write_pipeline_profile

ONE = SolveOptions(threads=1)
QUICK = Parameters(heuristic_ops=500, quick_ops=200)


def layered(seed: int, layers: int = 4, own: int = 1) -> PipelineProfile:
    """Layers of whole numbers, each with so many policies of its own between all and the input."""
    rng = np.random.default_rng(seed)
    forward_s, backward_s, weight_s = (rng.integers(2, 9, layers).astype(float) for _ in range(3))
    stash = rng.integers(4, 12, layers)
    drawn = [
        tuple(
            Policy(f"p{k}", int(rng.integers(1, size)), float(rng.integers(1, forward + 1)), int(size))
            for k in range(own)
        )
        for size, forward in zip(stash.tolist(), forward_s.tolist(), strict=True)
    ]
    one = np.ones(layers, dtype=np.int64)
    return PipelineProfile("layered", tuple("abcdefgh"[:layers]), forward_s, backward_s, weight_s, one, 2 * one, stash,
                           one, weight_stash_bytes=rng.integers(0, stash + 1), policies=tuple(drawn))  # fmt: skip


def asked(profile: PipelineProfile, **changes: Any) -> Problem:
    how: dict[str, Any] = {"recomputation": "curve", "message_memory": "free", "hops": EvenHops(1.0), **changes}
    return Problem(profile, how.pop("ranks", 2), how.pop("micro_batches", 2), **how)


def mixes(profile: PipelineProfile, first: int, end: int, splits: bool) -> list[StagePolicy]:
    """Whatever the layers of a stage may do, by going back through them one by one; and the stage's input alone."""
    stash, input_bytes = profile.stash_bytes.tolist(), [0, *profile.boundary_bytes.tolist()]
    each = [
        [(stash[k], 0.0, stash[k]), (min(input_bytes[k], stash[k]), float(profile.forward_s[k]), stash[k]),
         *((one.kept_bytes, one.again_s, one.working_bytes) for one in profile.policies[k])]
        for k in range(first, end)
    ]  # fmt: skip
    found = []
    for chosen in product(*each):
        live = peak = sum(kept for kept, _, _ in chosen)
        for (kept, _, working), left in zip(
            chosen[::-1], profile.deferred_bytes[first:end][::-1].tolist(), strict=True
        ):
            peak = max(peak, live + working - kept)
            live += (left if splits else 0) - kept
        found.append(StagePolicy(sum(kept for kept, _, _ in chosen), sum(s for _, s, _ in chosen), peak, ("mix",)))
    whole = sum(stash[first:end])
    return [*found, StagePolicy(min(input_bytes[first], whole), sum(profile.forward_s[first:end]), whole, ("input",))]


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("front", [2, 64])
@pytest.mark.parametrize("seed", range(share(12)))
def test_no_mix_of_layers_is_better_than_all_that_bounds_look_at(
    seed: int, front: int, splits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_FRONT", front)
    question = asked(layered(seed, own=2), ranks=1, micro_batches=1)
    (relaxed,), (curve,) = relaxed_of(question, (), splits), curve_of(question, (), splits)
    real = mixes(question.profile, 0, 4, splits)
    for mix in real:
        assert any(one.kept_bytes <= mix.kept_bytes and one.again_s <= mix.again_s + 1e-9
                   and one.working_bytes <= mix.working_bytes for one in relaxed)  # fmt: skip
    own = {(mix.kept_bytes, mix.again_s, mix.working_bytes) for mix in real}
    assert {(one.kept_bytes, one.again_s, one.working_bytes) for one in curve} <= own
    assert all(a.kept_bytes > b.kept_bytes and a.again_s < b.again_s for a, b in pairwise(curve[:-1]))


@pytest.mark.parametrize("seed", range(share(16)))
def test_the_best_of_all_cuts_policies_and_orders_is_found_and_none_is_below_a_bound(seed: int) -> None:
    profile = layered(seed, layers=3)
    total = int(profile.stash_bytes.sum())
    question = asked(profile, memory_bytes=float(6 + total * (3 + seed % 4) // 6), hops=EvenHops(float(seed % 3)),
                     backward=("split", "whole")[seed % 2], minimise=("makespan", "span")[seed // 2 % 2])  # fmt: skip
    splits = question.backward == "split"
    best_s = best_real_s = np.inf
    for cut in ((1,), (2,)):
        ends = list(pairwise((0, *cut, 3)))
        of_curve = min(
            best_cost_s(stages_of(question, cut, choice)) for choice in product(*curve_of(question, cut, splits))
        )
        of_mixes = min(best_cost_s(stages_of(question, cut, choice))
                       for choice in product(*(_useful(mixes(profile, *end, splits)) for end in ends)))  # fmt: skip
        assert any_policy_s(question, cut, splits, np.inf) <= of_mixes * (1 + 1e-9)
        best_s, best_real_s = min(best_s, of_curve), min(best_real_s, of_mixes)
    plan = planned(question, ONE, QUICK)
    if plan.schedule is None:
        assert np.isinf(best_s)
        return
    assert check(plan.schedule).valid
    assert plan.solution.objective == pytest.approx(best_s)
    assert all(one.value <= best_real_s * (1 + 1e-9) for one in plan.solution.bounds)


def _useful(found: list[StagePolicy]) -> list[StagePolicy]:
    """Without what another is at least as good as in all."""

    def key(one: StagePolicy) -> tuple[float, ...]:
        return one.kept_bytes, one.again_s, one.working_bytes

    kept = list({key(one): one for one in found}.values())
    return [one for one in kept if not any(
        key(other) != key(one) and all(a <= b for a, b in zip(key(other), key(one), strict=True)) for other in kept)
    ]  # fmt: skip


def test_a_curve_is_never_slower_than_its_two_ends() -> None:
    question = problem("gpt:layers=14,hidden=3072", ranks=4, micro_batches=8, memory="30GiB", bandwidth="200Gbps",
                       backward="whole", cut=(4, 8, 12))  # fmt: skip
    few = Parameters(heuristic_ops=2000, exact_steps=20, rounds=1, refined_cuts=1, policy_steps=8, quick_ops=1000)
    found = [planned(replace(question, recomputation=how), ONE, few) for how in ("none", "auto", "curve")]
    costs = [plan.solution.objective for plan in found if plan.solution.objective is not None]
    assert costs == sorted(costs, reverse=True)
    assert found[2].details["policies"]


@pytest.mark.parametrize(("recomputation", "chosen"), [("none", [False] * 4), ("all", [True] * 4)])
def test_what_is_asked_for_is_the_only_choice(recomputation: str, chosen: list[bool]) -> None:
    question = problem("uniform:f=1,b=1,w=1", ranks=4, micro_batches=2, recomputation=recomputation)
    plain = stages_of(question, (1, 2, 3))
    (choice,) = choices_of(question, plain, (1, 2, 3), 2)
    assert [policy.recomputes for policy in choice] == chosen
    assert are_all_choices(question, plain, (1, 2, 3), 1)


def test_every_subset_of_few_stages_and_what_suits_memory_of_many() -> None:
    question = problem("uniform:f=1,b=1,w=1", ranks=4, micro_batches=4, recomputation="auto", in_flight=2)
    plain = stages_of(question, (1, 2, 3))
    subsets = [tuple(policy.recomputes for policy in choice) for choice in choices_of(question, plain, (1, 2, 3), 16)]
    assert len(set(subsets)) == 16
    assert [sum(subset) for subset in subsets] == sorted(sum(subset) for subset in subsets)
    some = [tuple(policy.recomputes for policy in choice) for choice in choices_of(question, plain, (1, 2, 3), 15)]
    assert {(False,) * 4, (True, True, False, False), (True, True, True, False)} <= set(some)
    assert all(sorted(one, reverse=True) == list(one) for one in some), "the first stages keep most micro-batches"
    assert not are_all_choices(question, plain, (1, 2, 3), 15)


def test_policies_of_layers_are_read_as_they_were_written(tmp_path: Path) -> None:
    profile = layered(1, own=2)
    write_pipeline_profile(tmp_path / "p.json", profile)
    assert read_pipeline_profile(tmp_path / "p.json").policies == profile.policies
    write_pipeline_profile(tmp_path / "q.json", replace(profile, policies=()))
    assert read_pipeline_profile(tmp_path / "q.json").policies == ()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy("keep", 1, 1.0, 4), "layer 'a': policies: name must be one word, once, other than keep and input"),
        (Policy("two words", 1, 1.0, 4), "name must be one word"),
        (Policy("much", 99, 1.0, 99), "much: kept_bytes must be at most stash_bytes and working_bytes, got 99"),
    ],
)
def test_a_policy_that_saves_nothing_or_has_no_word_for_a_name_is_refused(policy: Policy, said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(layered(1), policies=((policy,), (), (), ()))
