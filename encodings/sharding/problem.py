"""The problem: an instance, and what plans of it must hold."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gapless.encodings.sharding.drawn import DRAWN, instance_of_words
from gapless.encodings.sharding.instance import Instance, read_instance
from gapless.encodings.sharding.question import Question
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.shardings.autoparallel import SHIPPED, shipped_instance
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion

__all__ = ["Problem", "find_instance", "is_there", "problem", "problem_of"]

_MOST_USAGE = 2**62
"""What all nodes together may use at most, in any choices: sums of it fit into 64 bits."""
_LIMIT_S = 60.0


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """A choice for each node of an instance. Raises `InputError` for usages whose sum leaves 64 bits."""

    instance: Instance

    def __post_init__(self) -> None:
        total = sum(int(usage.max()) for usage in self.instance.usages)
        if total >= _MOST_USAGE:
            raise InputError(f"instance: usages must sum to less than 2**62 bytes, got {total}")

    @property
    def system(self) -> str:
        """`sharding`."""
        return "sharding"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        instance = self.instance
        return {
            "instance": instance.name,
            "nodes": len(instance.costs),
            "choices": int(instance.choice_counts.sum()),
            "edges": len(instance.edges),
            "usage_limit_bytes": instance.usage_limit,
            "sha256": instance.digest,
        }

    @property
    def default_options(self) -> SolveOptions:
        """A minute."""
        return SolveOptions(time_limit_s=_LIMIT_S)


def find_instance(named: object) -> Instance:
    """The instance itself, the drawn one of such words, the shipped one of that name, or the one in a file.

    Raises `InputError`.
    """
    if isinstance(named, Instance):
        return named
    words = str(named)
    if words in SHIPPED:
        with shipped_instance(words) as path:
            return read_instance(path)
    return instance_of_words(words) if words.startswith(DRAWN) else read_instance(words)


def is_there(words: str) -> bool:
    """Whether such words name an instance that can be read here."""
    return words.startswith(DRAWN) or words in SHIPPED or os.path.isfile(words)


def problem_of(asked: Question) -> Problem:
    """What a question asks. Raises `InputError` as `read_instance` does."""
    return Problem(find_instance(asked.instance))


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
