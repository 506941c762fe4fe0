"""The problem: an instance, and what plans of it must hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.drawn import DRAWN, instance_of_words
from gapless.encodings.sharding.instances.instance import Instance, read_instance
from gapless.encodings.sharding.model.meshed import MeshedModel, Published, meshed_model
from gapless.encodings.sharding.question import BEST, Question
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.layouts.costs import NS
from gapless.profiles.layouts.published import AUTOPARALLEL
from gapless.profiles.shardings.autoparallel import SHIPPED, shipped_instance
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion
from gapless.units import format_bytes

__all__ = ["Problem", "find_instance", "is_there", "problem", "problem_of"]

Ints = NDArray[np.int64]

_MOST_USAGE = 2**62
"""What all nodes together may use at most, in any choices: sums of it fit into 64 bits."""
_LIMIT_S = 60.0


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """A choice for each node of an instance. Raises `InputError` for usages whose sum leaves 64 bits.

    `model`: what the nodes are, where they are a model's on a mesh. `method`: a baseline of it that is taken as it is;
    AutoParallel's is there once its question is answered (`parameter_memory.with_autoparallel`).
    """

    instance: Instance
    model: MeshedModel | None = field(default=None, repr=False, compare=False)
    method: str = BEST

    def __post_init__(self) -> None:
        total = sum(int(usage.max()) for usage in self.instance.usages)
        if total >= _MOST_USAGE:
            raise InputError(f"instance: usages must sum to less than 2**62 bytes, got {total}")
        is_open = self.method == AUTOPARALLEL and self.model is not None and AUTOPARALLEL not in self.baselines
        if self.method == BEST or is_open:
            return
        if self.model is None or self.method not in self.model.baselines:
            rule = "there must be a model" if self.model is None else "the mesh must divide the model's tensors so"
            raise InputError(f"method: for {self.method}, {rule}; take {BEST}")
        if not self.published:
            needed = self.instance.evaluate(self.baselines[self.method]).peak
            limit = format_bytes(self.instance.usage_limit)
            raise InputError(f"method: {self.method} needs {format_bytes(needed)} a device, and memory is {limit}")

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
            **({} if self.model is None else {"mesh": list(self.model.costs.shape), "graph": self.model.graph}),
        }

    @cached_property
    def published(self) -> tuple[Published, ...]:
        """The model's baselines that fit into the memory; the one that is asked for, if one is."""
        fits = [(name, self.instance.evaluate(choices)) for name, choices in self.baselines.items()]
        return tuple(
            Published(name, self.baselines[name], known.cost)
            for name, known in fits
            if known.peak <= self.instance.usage_limit and self.method in (BEST, name)
        )

    @property
    def baselines(self) -> Mapping[str, Ints]:
        """Choices by name, int64, shape (nodes,), whether they fit or not."""
        return {} if self.model is None else self.model.baselines

    def remarks(self, cost: int) -> dict[str, object]:
        """Of a plan of a model: how long a step is predicted to take, beside baselines, and what ops have no rule."""
        if self.model is None:
            return {}
        known = {name: self.instance.evaluate(choices) for name, choices in self.baselines.items()}
        rows = [{"name": name, "step_s": each.cost / NS, "peak_bytes": each.peak} for name, each in known.items()]
        return {
            "step_s": cost / NS, "baselines": rows, "tied_nodes": self.model.tied,
            "without_rule": dict(self.model.without_rule),
        }  # fmt: skip

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
    """What a question asks. Raises `InputError` as `read_instance` and `meshed_model` do."""
    if (asked.model is None) == (asked.instance is None):
        raise InputError("instance: give it or a model, one of them")
    if asked.model is None:
        return Problem(find_instance(asked.instance), method=asked.method)
    return Problem(*meshed_model(asked), asked.method)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
