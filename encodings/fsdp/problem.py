"""Problem: a model's layers whose parameters are sharded over ranks, and the network that gathers them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gapless.encodings.fsdp.question import EXECUTORS, GATHERS, METHODS, SCATTERS, SHARDINGS, Question
from gapless.encodings.fsdp.step.costs import Costs, Inner, Replicas
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.pipelines.named import find_pipeline_profile
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion

__all__ = ["ELEMENT_BYTES", "WIRE_BYTES", "Problem", "problem", "problem_of"]

ELEMENT_BYTES = {"bf16": 2, "fp32": 4}
"""Of a number in memory."""
_SCALED = 1 + 4 / 128
WIRE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": _SCALED, "int8": _SCALED}
"""Of a number on the network; in eight bits with a scale in single precision for 128 of them."""


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """What is gathered and scattered together, when, and what is kept, so that a step takes the least time.

    `memory_bytes`: for gathered parameters and gradients that aren't scattered, inf for no limit. The others: the
    fields of `Question`. Raises `InputError` for a name that doesn't exist, and for numbers out of range.
    """

    profile: PipelineProfile
    ranks: int
    bytes_per_s: float
    latency_s: float = Question.latency
    memory_bytes: float = math.inf
    gather: tuple[str, ...] = ("bf16",)
    scatter: tuple[str, ...] = ("fp32",)
    executor: str = Question.executor
    stored: str = Question.stored
    method: str = Question.method
    ranks_per_node: int = Question.ranks_per_node
    inner_bytes_per_s: float | None = None
    inner_latency_s: float = Question.inner_latency
    sharding: tuple[str, ...] = ("full",)
    state_bytes: float = Question.state_bytes

    def __post_init__(self) -> None:
        check_known("method", self.method, METHODS)
        check_known("executor", self.executor, EXECUTORS)
        check_known("stored", self.stored, ELEMENT_BYTES)
        for title, known in (("gather", GATHERS), ("scatter", SCATTERS), ("sharding", SHARDINGS)):
            if not getattr(self, title):
                raise InputError(f"{title}: must name at least one, got none")
            for name in getattr(self, title):
                check_known(title, name, known)
        if not self.bytes_per_s > 0:
            raise InputError(f"bandwidth: must be > 0, got {self.bytes_per_s}")
        if self.ranks % self.ranks_per_node:
            raise InputError(f"ranks_per_node: must divide the {self.ranks} ranks, got {self.ranks_per_node}")
        if (self.ranks_per_node > 1) != (self.inner_bytes_per_s is not None):
            raise InputError("inner_bandwidth: goes with ranks_per_node above 1, and that with inner_bandwidth")
        if self.inner_bytes_per_s is not None and self.executor != "fsdp2":
            raise InputError("inner_bandwidth: goes with executor fsdp2; any has one network")
        if "full" not in self.sharding:
            raise InputError(f"sharding: must have full among them, got {','.join(self.sharding)}")
        if self.method in SHARDINGS[1:] and self.method not in self.sharding:
            raise InputError(f"method: {self.method} goes with sharding full,{self.method}")
        if len(self.sharding) > 1 and not 1 < self.ranks_per_node < self.ranks:
            raise InputError("sharding: goes with several nodes; give ranks_per_node and inner_bandwidth")

    @cached_property
    def costs(self) -> Costs:
        """On a ring: a rank sends (p - 1) / p of what all ranks then have, or add up. With nodes, ranks that have one
        place in them do that with their share of it, and those of a node with all of it."""
        element, profile = ELEMENT_BYTES[self.stored], self.profile
        nodes, inner = self.ranks // self.ranks_per_node, None
        each_s = (nodes - 1) / nodes / self.ranks_per_node / self.bytes_per_s
        if self.inner_bytes_per_s is not None:
            inner_s = (self.ranks_per_node - 1) / self.ranks_per_node / self.inner_bytes_per_s
            inner = Inner(self.inner_latency_s, *self._rates(inner_s))
        gathers_s, scatters_s = self._rates(each_s)
        gathered = max(ELEMENT_BYTES["bf16"], *(min(WIRE_BYTES[name], 4.0) for name in self.gather))
        return Costs(
            parameters=-(-np.asarray(profile.parameter_bytes) // element),
            forward_s=profile.forward_s,
            backward_s=profile.backwards_s(splits=False)[0],
            latency_s=self.latency_s,
            gathers_s=gathers_s,
            scatters_s=scatters_s,
            gathered_bytes=float(math.ceil(gathered)),
            gradient_bytes=float(max(ELEMENT_BYTES["bf16"], *(math.ceil(WIRE_BYTES[name]) for name in self.scatter))),
            memory_bytes=self.memory_bytes,
            takes_when_begun=self.executor == "fsdp2",
            inner=inner,
            replicas=self._replicas,
        )

    @property
    def _replicas(self) -> Replicas:
        """What is offered besides sharding over all ranks."""
        more = self.state_bytes * (1 / self.ranks_per_node - 1 / self.ranks)
        return Replicas(
            1 / self.ranks_per_node if "secondary" in self.sharding else 1.0,
            more if "hybrid" in self.sharding else None,
        )

    def _rates(self, each_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds of a parameter by precision, of a gather and of a scatter, where a byte takes so many."""
        gathers, scatters = (
            {name: WIRE_BYTES[name] * each_s for name in known if name in offered}
            for known, offered in ((GATHERS, self.gather), (SCATTERS, self.scatter))
        )
        return gathers, scatters

    @property
    def system(self) -> str:
        """`fsdp`."""
        return "fsdp"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        return {
            "profile": self.profile.name,
            "layers": list(self.profile.layer_names),
            "parameters": self.costs.parameters.tolist(),
            "forward_s": self.costs.forward_s.tolist(),
            "backward_s": self.costs.backward_s.tolist(),
            "ranks": self.ranks,
            "bandwidth_bytes_per_s": self.bytes_per_s,
            "latency_s": self.latency_s,
            "ranks_per_node": self.ranks_per_node,
            "inner_bandwidth_bytes_per_s": self.inner_bytes_per_s,
            "inner_latency_s": self.inner_latency_s,
            "memory_bytes": self.memory_bytes if math.isfinite(self.memory_bytes) else None,
            "sharding": list(self.sharding),
            "state_bytes": self.state_bytes,
            "gather": list(self.gather),
            "scatter": list(self.scatter),
            "executor": self.executor,
            "method": self.method,
            "source": self.profile.source,
        }

    @property
    def default_options(self) -> SolveOptions:
        """Within a minute."""
        return SolveOptions(time_limit_s=60.0)


def problem_of(asked: Question) -> Problem:
    """The sharded step of a profile. Raises `InputError` naming a field that doesn't go with the others."""
    profile = find_pipeline_profile(asked.profile, 1, 1)
    if not profile.parameter_bytes.any():
        raise InputError(f"profile: must have parameters to shard, {profile.name!r} has none")
    memory_bytes = math.inf if asked.memory is None else float(asked.memory)
    return Problem(
        profile, asked.ranks, asked.bandwidth, asked.latency, memory_bytes, tuple(dict.fromkeys(asked.gather)),
        tuple(dict.fromkeys(asked.scatter)), asked.executor, asked.stored, asked.method,
        asked.ranks_per_node, asked.inner_bandwidth, asked.inner_latency, tuple(dict.fromkeys(asked.sharding)),
        asked.state_bytes,
    )  # fmt: skip


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
