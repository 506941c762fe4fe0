"""What a challenge came to: for people, for programs, and the best plan for whoever wants it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gapless.challenges.attempts import Attempt, Verdict
from gapless.challenges.claims import Claim, bound_in_words, in_words
from gapless.errors import InputError
from gapless.io.plan import claim_data
from gapless.report.short_repr import BriefText
from gapless.report.text import described
from gapless.result import write_saved

__all__ = ["ChallengeReport"]

MOST_NAMED = 8
"""So many attempts that were not asked are named in the text; the data has them all."""


@dataclass(frozen=True, repr=False)
class ChallengeReport(BriefText):
    """What became of a plan's claims.

    `where`: the plan's file, or its system. `false`: what the file claims that its own replay refutes. `left_out`: the
    attempts that there was no time for. `why_ended`: "time limit" or "interrupted", empty where all went to their end.
    """

    where: str
    system: str
    claim: Claim
    valid: bool
    false: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    left_out: tuple[str, ...] = ()
    why_ended: str = ""

    @property
    def refuted(self) -> tuple[str, ...]:
        """Each false claim in a line: of the file, and of what the attempts found."""
        lines = [line for each in self.attempts if each.verdict is Verdict.REFUTED for line in each.says]
        return tuple(dict.fromkeys([*self.false, *lines]))

    @property
    def best(self) -> Attempt | None:
        """The attempt with the best plan, None where none is better than the plan."""
        better = [each for each in self.attempts if each.plan is not None]
        return min(better, key=lambda each: each.cost or 0.0, default=None)

    @property
    def verdict(self) -> str:
        """`refuted`, `better` or `stands`."""
        return "refuted" if self.refuted else "better" if self.best is not None else "stands"

    @property
    def is_alarm(self) -> bool:
        """Whether anything was found: a claim that is false, or a better plan."""
        return self.verdict != "stands"

    @property
    def gain(self) -> float | None:
        """How much less the best plan costs, as a share of the plan's cost; None where none is better."""
        best = self.best
        if best is None or best.cost is None or not self.claim.cost:
            return None
        return 1 - best.cost / self.claim.cost

    @property
    def data(self) -> dict[str, object]:
        """All of it in plain values: the JSON object of the command line."""
        solution, best = self.claim.solution, self.best
        return {
            "problem": self.system,
            "file": self.where,
            "verdict": self.verdict,
            f"objective_{self.claim.unit}": self.claim.cost,
            "bounds": claim_data(solution)["bounds"],
            "status": solution.status.value,
            "valid": self.valid,
            "refuted": list(self.refuted),
            "better": None if best is None else {**best.data, "gain": self.gain},
            "attempts": [each.data for each in self.attempts],
            "left_out": list(self.left_out),
            "why_ended": self.why_ended,
        }

    @property
    def text(self) -> str:
        """A line for each attempt, and the verdict below."""
        unit, solution = self.claim.unit, self.claim.solution
        bounds = ", ".join(f"bound {bound_in_words(each, unit)}" for each in solution.bounds)
        head = f"{self.where}: {in_words(self.claim.cost, unit)}, {solution.status.value}, {bounds or 'no bound'}"
        width = max((len(each.name) for each in self.attempts), default=0)
        made = [each for each in self.attempts if each.verdict is not Verdict.NOT_ASKED]
        lines = [f"  {each.name:<{width}}  {self._line(each)}" for each in made]
        others = [each.name for each in self.attempts if each.verdict is Verdict.NOT_ASKED]
        more = [f"and {len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else []
        lines += [f"  not for this question: {', '.join([*others[:MOST_NAMED], *more])}"] if others else []
        return "\n".join([head, *lines, *self._conclusion()])

    def _line(self, attempt: Attempt) -> str:
        cost = attempt.cost
        if cost is None:
            return attempt.verdict.value
        percent = round(100 * (cost / self.claim.cost - 1), 2) + 0.0 if self.claim.cost else 0.0
        difference = f" ({percent:+.2f} %)" if percent else ""
        return f"{attempt.verdict.value}: {in_words(cost, self.claim.unit)}{difference}, {attempt.plans.value}"

    def _conclusion(self) -> list[str]:
        lines = [f"refuted: {line}" for line in self.refuted]
        best, made = self.best, len(self.attempts)
        if best is not None:
            less = "" if self.gain is None else f", {described('gap', self.gain)} less"
            lines.append(f"a better plan: {in_words(best.cost, self.claim.unit)}{less}, by: {best.name}")
        if not lines:
            lines = [f"nothing is refuted, no plan is better, in {made} attempts"]
        if self.why_ended:
            cut, left = sum(each.is_cut_short for each in self.attempts), len(self.left_out)
            lines.append(f"{self.why_ended}: of {made + left} attempts {cut} are cut short, {left} are left out")
        return lines

    def save(self, path: str | Path) -> None:
        """Write the best plan that was found. Raises `InputError` where none is better."""
        best = self.best
        if best is None or best.plan is None:
            raise InputError(f"{self.where}: no better plan was found, there is none to write")
        write_saved(path, best.plan)
