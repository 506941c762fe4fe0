"""Sums of gradients after a pipeline's step: among replicas, in the modes of a plan, and of a shared embedding.

Weights that the first and the last stage share get one gradient: the sum of both stages', the mean over replicas. Fused
it is one collective among all ranks that have a copy (Optimus-CC, section 6); separate, a sum among replicas in each of
the two stages, and then one between them. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket, Method
from gapless.torch.compression import exchanged_together
from gapless.torch.library import Module, Tensor, rank_count, torch

__all__ = ["Groups", "ReplicaSums", "planned_sum_bytes"]

_PLAIN = "plain"
Group: TypeAlias = torch.distributed.ProcessGroup | None
"""None where there is none, or this process isn't in it."""


@dataclass(frozen=True)
class Groups:
    """The process groups of ranks * replicas processes, of which process `d * ranks + r` is rank r of replica d.

    `pipeline`: of this process's replica. `replicas`: those of this process's rank. `copies`: all that have a copy of a
    shared embedding, `pair`: those two of this process's replica; None in other processes.
    """

    rank: int
    replica: int
    count: int
    pipeline: Group
    replicas: Group
    copies: Group
    pair: Group

    @classmethod
    def made(cls, ranks: int, replicas: int, ends: tuple[int, int]) -> Groups:
        """By all processes together; `ends`: the ranks of the first and the last stage. Raises `InputError` where there
        are more or fewer processes.
        """
        if rank_count() != ranks * replicas:
            rule = f"must be {ranks} ranks x {replicas} replicas = {ranks * replicas}"
            raise InputError(f"processes: {rule}, got {rank_count()}")
        number = torch.distributed.get_rank() if rank_count() > 1 else 0
        replica, rank = divmod(number, ranks)
        pipelines = [_group(range(d * ranks, (d + 1) * ranks)) for d in range(replicas)]
        own = [_group(range(r, ranks * replicas, ranks)) for r in range(ranks)]
        copies = _group(sorted({d * ranks + end for d in range(replicas) for end in ends}))
        pairs = [_group(sorted({d * ranks + end for end in ends})) for d in range(replicas)]
        has_copy = rank in ends
        return cls(rank, replica, replicas, pipelines[replica], own[rank], copies if has_copy else None,
                   pairs[replica] if has_copy else None)  # fmt: skip


def _group(members: Sequence[int]) -> Group:
    return torch.distributed.new_group(list(members)) if torch.distributed.is_initialized() else None


class ReplicaSums:
    """Makes of the gradients of this process's stages the means over replicas.

    `stages`: modules by the number of the stage; `modes`: of each stage of the plan, or none. What a mode loses of a
    parameter's gradient is added to its next one. `shared`: names of a shared weight in the first stage and the last,
    of `last`. `sent_bytes`: payloads so far, by `sums` and `embedding`.
    """

    def __init__(
        self, groups: Groups, stages: Mapping[int, Module], last: int, shared: Sequence[tuple[str, str]] = (),
        fuses_embedding: bool = True,
    ) -> None:  # fmt: skip
        self.groups, self.fuses_embedding = groups, fuses_embedding
        self._parameters = {
            stage: {name: each for name, each in module.named_parameters() if each.requires_grad}
            for stage, module in stages.items()
        }
        first, end = self._parameters.get(0, {}), self._parameters.get(last, {})
        self._copies = [[at[name] for at, name in ((first, a), (end, b)) if name in at] for a, b in shared]
        self._kept: dict[str, tuple[Tensor | None, dict[str, Any], int]] = {}
        self.sent_bytes = {"sums": 0, "embedding": 0}

    def __call__(self, modes: Sequence[str] = ()) -> None:
        """After a step's backward; `modes`: of each stage's sum, none for plain ones."""
        shared = {id(each) for copies in self._copies for each in copies} if self.fuses_embedding else set()
        for copies in self._copies:
            self._local(copies)
        for stage, parameters in self._parameters.items():
            own = {name: each for name, each in parameters.items() if id(each) not in shared and each.grad is not None}
            if self.groups.count > 1 and own:
                self._summed(stage, own, modes[stage] if modes else _PLAIN)
        for copies in self._copies:
            self._exchanged(copies)

    def _local(self, copies: list[Tensor]) -> None:
        """A process with the first and the last stage adds up its two gradients itself, into the first."""
        if len(copies) == 2:
            first, last = copies
            first.grad, last.grad = _grad(first) + _grad(last), torch.zeros_like(last)

    def _summed(self, stage: int, parameters: Mapping[str, Tensor], mode: str) -> None:
        """All gradients of a stage together, a collective for each kind and round."""
        methods = [_method(mode, tuple(each.shape)) for each in parameters.values()]
        given = [self._given(f"{stage}.{name}", number, each) for number, (name, each) in enumerate(parameters.items())]
        exchanges = [method.exchange(each) for method, each in zip(methods, given, strict=True)]
        means, sent_bytes = exchanged_together(exchanges, self.groups.replicas)
        self.sent_bytes["sums"] += sent_bytes
        for (name, each), method, bucket, mean in zip(parameters.items(), methods, given, means, strict=True):
            error = None if method.error == "exact" else bucket.gradient
            self._kept[f"{stage}.{name}"] = error, bucket.memory, bucket.step + 1
            each.grad = mean.reshape(each.shape)

    def _given(self, name: str, number: int, parameter: Tensor) -> Bucket:
        error, memory, step = self._kept.get(name, (None, {}, 0))
        flat = _grad(parameter).detach().reshape(-1)
        flat = flat.clone() if error is None else flat + error
        return Bucket(flat, [tuple(parameter.shape)], self.groups.replica, self.groups.count, number, step, memory)

    def _exchanged(self, copies: list[Tensor]) -> None:
        """The sum of both stages' gradients in both; where it is fused, that among replicas is in the same sum."""
        group = self.groups.copies if self.fuses_embedding else self.groups.pair
        total = _grad(copies[0]) if copies else None
        if total is None:
            return
        if rank_count(group) > 1:
            torch.distributed.all_reduce(total, group=group)
            self.sent_bytes["embedding"] += total.nbytes
        if self.fuses_embedding:
            total.div_(self.groups.count)
        for each in copies:
            each.grad = total.clone()


def _grad(parameter: Tensor) -> Tensor:
    gradient = parameter.grad
    return torch.zeros_like(parameter) if gradient is None else gradient


def _method(mode: str, shape: tuple[int, ...]) -> Method:
    """Vectors go plain, as where errors of sums are measured, but for casts."""
    method = method_of(mode)
    return method if len(shape) > 1 or method.error == "rounded" else method_of(_PLAIN)


def planned_sum_bytes(stage: Module, mode: str, left_out: Sequence[str] = ()) -> int:
    """The payload of a stage's sum in a mode, by the shapes of its weights; `left_out`: names of those without one."""
    shapes = [tuple(each.shape) for name, each in stage.named_parameters() if name not in left_out]
    return sum(_method(mode, shape).sent_bytes(shape) for shape in shapes)
