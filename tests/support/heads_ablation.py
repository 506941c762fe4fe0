"""What each search of CHAI is worth: all but one of them, over 28 questions.

`python tests/support/heads_ablation.py`, in a checkout, solves them and prints the table of CHAI's page. Errors and
bounds are the same on any machine; seconds aren't.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from gapless.encodings.chai.methods import IN_ORDER
from gapless.encodings.chai.problem import Problem, problem
from gapless.encodings.chai.solve import solve
from gapless.options import SolveOptions
from gapless.profiles.heads.profile import HeadProfile

ENOUGH = 1e-6
"""Shares below this are none."""
SYNTHETIC = (
    "layers=32,heads=32",
    "layers=16,heads=16",
    "layers=8,heads=24,key_heads=8,seed=1",
    "layers=12,heads=12,seed=3",
)


def ablation_questions() -> Iterator[Problem]:
    """Made-up and measured heads at three savings, and heads at distances that are drawn."""
    for saving in (0.1, 0.214, 0.35):
        yield from (problem(f"synthetic:{shape}", saving) for shape in SYNTHETIC)
        yield from (problem("small-lm", saving, distance=distance) for distance in ("output", "scores"))
    for seed in range(10):
        distances = np.random.default_rng(seed).gamma(0.5, size=(2, 4, 12, 12)) * (1 - np.eye(12))
        yield Problem(HeadProfile("drawn", *distances, 12, 16, 1000, 1), (0.15, 0.3)[seed % 2])


def found(without: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, float]:
    """Errors and bounds of all questions, and processor seconds."""
    begin_s = time.process_time()
    parameters = {"methods": {"without": without}}
    plans = [solve(asked, SolveOptions(threads=1), parameters).solution for asked in ablation_questions()]
    errors, bounds = (np.array([getattr(each, name) for each in plans]) for name in ("objective", "bound"))
    return errors, bounds, time.process_time() - begin_s


def main() -> None:
    """Solve, and print the table."""
    names = [method.name for method in IN_ORDER]
    least, _, _ = found(())
    print("| left out | worse plans | by, in the mean | at most | proven | gap at most | processor time |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for without in ((), *((name,) for name in dict.fromkeys(names)), ("prices", "proofs"), ("exchanges", "proofs")):
        errors, bounds, taken_s = found(without)
        worse, gaps = errors / least - 1, 1 - bounds / errors
        title = ", ".join(f"`{name}`" for name in without) or "none"
        shares = f"{(worse > ENOUGH).sum()} | {worse.mean():.2%} | {worse.max():.1%} | {(gaps <= ENOUGH).sum()}"
        print(f"| {title} | {shares} | {gaps.max():.1%} | {taken_s:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
