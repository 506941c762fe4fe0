"""Recomputation: every subset of few stages, prefixes of many."""

from __future__ import annotations

import pytest

from gapless.encodings.pipeline.cut.costs import are_all_choices, recomputation_choices
from gapless.encodings.pipeline.problem import problem


@pytest.mark.parametrize(("recomputation", "chosen"), [("none", [False] * 4), ("all", [True] * 4)])
def test_what_is_asked_for_is_the_only_choice(recomputation: str, chosen: list[bool]) -> None:
    asked = problem("uniform:f=1,b=1,w=1", ranks=4, micro_batches=2, recomputation=recomputation)
    assert [choice.tolist() for choice in recomputation_choices(asked, 2)] == [chosen]
    assert are_all_choices(asked, 2)


def test_every_subset_of_few_stages_and_prefixes_of_many() -> None:
    asked = problem("uniform:f=1,b=1,w=1", ranks=4, micro_batches=2, recomputation="auto")
    subsets = [tuple(choice.tolist()) for choice in recomputation_choices(asked, 4)]
    assert len(set(subsets)) == 16
    assert [sum(subset) for subset in subsets] == sorted(sum(subset) for subset in subsets)
    assert are_all_choices(asked, 4)
    assert [choice.tolist() for choice in recomputation_choices(asked, 3)] == [
        [number < recomputed for number in range(4)] for recomputed in range(5)
    ]
    assert not are_all_choices(asked, 3)
