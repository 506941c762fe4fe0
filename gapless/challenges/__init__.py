"""Challenges: attempts to refute what a plan claims, by asking its question otherwise.

`gapless.challenge(plan)` reads a plan's question and asks it again and again otherwise, each time with a share of
counted work. It reports every valid plan that is better than the plan, or below one of its bounds.
"""

from gapless.challenges.attempts import Attempt, Verdict
from gapless.challenges.parameters import ChallengeParameters
from gapless.challenges.recipe import challenge
from gapless.challenges.report import ChallengeReport

__all__ = ["Attempt", "ChallengeParameters", "ChallengeReport", "Verdict", "challenge"]
