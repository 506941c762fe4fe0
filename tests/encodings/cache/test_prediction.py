"""What was predicted beside what is measured, and remarks on what errors are of."""

from __future__ import annotations

import pytest

from gapless.encodings.cache.commands.prediction import Prediction
from gapless.encodings.cache.problem import problem
from gapless.encodings.cache.remarks import remarks
from gapless.encodings.cache.solve import solve
from gapless.options import SolveOptions

PROFILE = "synthetic:layers=2,heads=4,dimension=16"  # errors of 2,048 tokens


@pytest.mark.parametrize(
    ("predicted", "measured", "own", "said"),
    [
        (1.0, 1.4, None, ""),
        (1.0, 1.6, None, "--calibration"),
        (1.6, 1.0, None, "--calibration"),
        (1.0, 1.6, 1.1, "another text does most"),
        (1.0, 1.6, 1.5, "modes together do most"),
        (1.0, 0.6, 0.7, "modes together do most"),
        (0.0, 1.6, None, ""),  # nothing was to be spoiled: there is no share of it
        (1.0, -0.1, None, ""),  # a loss that fell
    ],
)
def test_an_error_far_from_the_predicted_one_is_followed_by_what_to_do(
    predicted: float, measured: float, own: float | None, said: str
) -> None:
    made = Prediction("divergence", predicted, measured, own)
    assert made.advice.startswith(said) if said else made.advice == ""
    assert ("on the profile's text" in made.text) == (own is not None)


@pytest.mark.parametrize(
    ("tokens", "modes", "said"),
    [
        (2048, "windows", ""),
        (8192, "formats", "sequences of 2,048 tokens, and the cache is of 8,192; "),
        (8192, "windows", "sequences of 2,048 tokens, and the cache is of 8,192: its windows drop more"),
        (1024, "windows", "sequences of 2,048 tokens, and the cache is of 1,024; "),
    ],
)
def test_tokens_that_were_not_measured_are_said(tokens: int, modes: str, said: str) -> None:
    plan = solve(problem(PROFILE, cache="0.6x", tokens=tokens, modes=modes), SolveOptions())
    assert plan.schedule is not None
    found = remarks(plan.details)
    assert len(found) == bool(said)
    assert all(said in line for line in found)
