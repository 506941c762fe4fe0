"""What runs beside a plan, and the profile that a plan file holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gapless.encodings.cupcake import Problem
from gapless.encodings.cupcake.commands.execution import middle_half, rival_fusions
from gapless.encodings.cupcake.problem import asked_profile
from gapless.errors import InputError
from gapless.profiles.gradients.cost_functions import AffineCost, PointsCost
from gapless.profiles.gradients.fusion import Costs, Fusion
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile

MIB = 2**20
PLAIN = plain_mode(AffineCost(1e-3, 1e-9))
TOPK = Mode("topk", PointsCost(((4.0, 1e-4), (8.0, 2e-4))), AffineCost(1e-4, 1e-10), error="feedback")
FACTORS = Mode(
    "powersgd:2", AffineCost(2e-3, 1e-9), AffineCost(1e-4, 0.0), AffineCost(1e-4, 0.0), "feedback",
    encoded_bytes=(1.0, 2.0, 3.0, 4.0), sent_bytes=(0.5, 0.5, 0.5, 0.5),
)  # fmt: skip


def profile(*modes: Mode) -> FusionProfile:
    sizes = np.array([MIB // 2, MIB // 2, 20 * MIB, 10 * MIB])
    return FusionProfile("four", 0.01, tuple("dcba"), sizes, np.array([1e-3, 2e-3, 3e-3, 4e-3]), modes, "made up")


def test_rivals_are_what_people_do() -> None:
    plan = Fusion((1, 3, 4), ("topk", "powersgd:2", "topk"))
    found = rival_fusions(profile(PLAIN, TOPK, FACTORS), plan)
    assert found == {
        "DDP's default": Fusion.uniform((2, 4), "plain"),
        "one bucket": Fusion.uniform((4,), "plain"),
        "layer-wise": Fusion.uniform((1, 2, 3, 4), "plain"),
        "compress all": Fusion.uniform((2, 4), "powersgd:2"),
    }


def test_all_is_compressed_in_the_first_mode_where_the_plan_compresses_nothing() -> None:
    found = rival_fusions(profile(PLAIN, TOPK, FACTORS), Fusion.uniform((4,), "plain"))
    assert set(found["compress all"].modes) == {"topk"}


def test_what_the_profile_has_no_costs_of_is_left_out() -> None:
    assert list(rival_fusions(profile(TOPK), Fusion.uniform((4,), "topk"))) == ["compress all"]
    assert "compress all" not in rival_fusions(profile(PLAIN), Fusion.uniform((4,), "plain"))


def test_a_plans_problem_holds_its_profile() -> None:
    asked = profile(PLAIN, TOPK, FACTORS)
    description = json.loads(json.dumps(Problem(asked).description))
    found = asked_profile(description, "plan.json")
    assert (found.modes, found.tensor_names, found.source) == (asked.modes, asked.tensor_names, "made up")
    fusion = Fusion((1, 3, 4), ("topk", "powersgd:2", "plain"))
    assert Costs.of(found).step_s(fusion) == Costs.of(asked).step_s(fusion)
    for change, message in (
        ({"tensor_backward_s": [1e-3, -1.0, 1.0, 1.0]}, r"tensor_backward_s\[1\]: must be a number >= 0, got -1"),
        ({"costs": [{"name": "plain"}]}, r"costs\[0\]: field 'communication' is missing"),
        ({"tensor_bytes": [1]}, "size_bytes and backward_s must have one entry for each of 4 tensors"),
    ):
        with pytest.raises(InputError, match=rf"^plan\.json.*{message}"):
            asked_profile({**description, **change}, "plan.json")


def test_the_middle_half_leaves_a_quarter_on_either_side() -> None:
    assert middle_half([5, 1, 2, 4, 3, 8, 7, 6]) == (3, 6)
    assert middle_half([2.0]) == (2.0, 2.0)
