"""What the states of hooks share: what they keep from step to step, and the model in DDP that they are registered with.

Mixed precision skips a step whose gradients aren't finite. What such a step would leave behind (errors, factors,
numbers of steps) is forgotten in all ranks alike, since all look at the same means. So the training goes on as if the
step hadn't been.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gapless.errors import InputError
from gapless.profiles.compressors.method import Bucket, Method
from gapless.torch.library import Tensor, rank_count, torch

__all__ = [
    "FeedbackState", "HookMemory", "Kept", "Resumable", "Scaler", "actual_buckets", "check_entries", "check_header",
    "check_owner", "header", "hook_state", "owner_of", "poison", "rebuild_buckets",
]  # fmt: skip


_FORMAT, _VERSION = "gapless.hook-state", 1


class Resumable(Protocol):
    """A hook's state, from which a run goes on."""

    def state_dict(self) -> dict[str, object]:
        """This rank's, in plain values and tensors."""

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""


def owner_of(state: object) -> torch.nn.parallel.DistributedDataParallel | None:
    """The model in DDP with which a hook's state is registered; None where there is none.

    A hook isn't called with DDP, but DDP holds its state: so Python's garbage collector is asked what does.
    """
    for each in gc.get_objects():
        is_ddp = issubclass(type(each), torch.nn.parallel.DistributedDataParallel)
        if is_ddp and any(other is state for _, other in getattr(each, "_comm_hooks", ())):
            return each
    return None


def hook_state(ddp: torch.nn.parallel.DistributedDataParallel) -> Resumable | None:
    """The state of the hook that a model in DDP has, which can be saved and loaded; None where it has no hook."""
    hooks = ddp._comm_hooks  # noqa: SLF001
    return hooks[0][1] if hooks else None


def check_owner(
    ddp: torch.nn.parallel.DistributedDataParallel,
    group: torch.distributed.ProcessGroup | None,
    feeds_back: bool = True,
) -> None:
    """Raise `InputError` where a hook would average over other ranks than DDP, or lose errors that are fed back."""
    ranks = torch.distributed.get_process_group_ranks
    if rank_count() > 1 and ranks(group) != ranks(ddp.process_group):
        rule = f"state: must average over the ranks that DDP does, {ranks(ddp.process_group)}, got {ranks(group)}"
        raise InputError(f"{rule}; make it with group=ddp.process_group")
    if feeds_back and ddp.find_unused_parameters and not ddp.static_graph:
        rule = "find_unused_parameters: must be False with modes that feed errors back, since DDP drops what arrives"
        raise InputError(f"{rule} of an unused parameter, got True")


def actual_buckets(ddp: torch.nn.parallel.DistributedDataParallel) -> tuple[tuple[str, ...], ...]:
    """The parameters in each bucket that a model in DDP has now, in the order in which buckets are reduced.

    Equal to the plan's `DdpBuckets.buckets` from iteration 1's forward on. Takes memory for one more set of gradients
    for a moment.
    """
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    # Private, but DDP offers no other access; its own uneven-inputs join uses it.
    buckets = ddp.reducer._get_zeros_like_grad_buckets()  # noqa: SLF001
    return tuple(tuple(names[id(parameter)] for parameter in bucket.parameters()) for bucket in buckets)


def rebuild_buckets(ddp: torch.nn.parallel.DistributedDataParallel, buckets: Sequence[Sequence[str]]) -> None:
    """Let DDP have the buckets that it had in another run, before it trains; called by all ranks.

    DDP makes its buckets anew after the first step, in the order in which gradients became ready. So gradients of zero
    become ready in that order here. Raises `InputError` where these buckets don't result.
    """
    wanted = tuple(map(tuple, buckets))
    if actual_buckets(ddp) == wanted:
        return
    parameters = dict(ddp.module.named_parameters())
    gradients = [(parameter, parameter.grad) for parameter in parameters.values()]
    if not ddp.static_graph:
        with torch.enable_grad():
            ddp.reducer.prepare_for_backward([])
            for name in (name for bucket in wanted for name in bucket):
                parameters[name].backward(torch.zeros_like(parameters[name]))
        ddp.reducer._rebuild_buckets()  # noqa: SLF001
        for parameter, gradient in gradients:
            parameter.grad = gradient
    if actual_buckets(ddp) != wanted:
        rule = "state: DDP must make the buckets that the state was saved with"
        raise InputError(f"{rule}; give it the same options, not static_graph, and load before it trains")


# -- what states are saved with ----------------------------------------------------------------------------------------


def header(kind: str, group: torch.distributed.ProcessGroup | None) -> dict[str, object]:
    """What a saved state begins with: whose it is."""
    ranks = rank_count(group)
    rank = torch.distributed.get_rank(group) if ranks > 1 else 0
    return {"format": _FORMAT, "version": _VERSION, "kind": kind, "rank": rank, "ranks": ranks}


def check_header(data: Mapping[str, object], kind: str, group: torch.distributed.ProcessGroup | None) -> None:
    """Raise `InputError` where a state is of another kind or rank, or of a run with another number of ranks."""
    for name, wanted in header(kind, group).items():
        got = data.get(name) if isinstance(data, Mapping) else None
        if got != wanted:
            rule = f"state: {name} must be {wanted!r}, got {got!r}"
            raise InputError(f"{rule}; every rank loads what state_dict() of the same kind gave in the same rank")


class Scaler(Protocol):
    """What `torch.amp.GradScaler` is."""

    def get_scale(self) -> float:
        """What losses are multiplied by now."""


@dataclass(frozen=True)
class Kept:
    """What is kept of a bucket: the lengths of its gradients, the flat error to be added to the next ones, if there is
    any, and what its mode keeps, by name; `step`: how often the bucket was sent. `entries`: what its mode keeps of each
    entry, by name, in the scale of the error.
    """

    lengths: tuple[int, ...]
    error: Tensor | None = None
    memory: dict[str, object] = field(default_factory=dict)
    step: int = 0
    entries: dict[str, Tensor] = field(default_factory=dict)

    def scaled(self, factor: float) -> Kept:
        """In another scale of the gradients."""
        entries = {name: factor * tensor for name, tensor in self.entries.items()}
        return replace(self, error=None if self.error is None else factor * self.error, entries=entries)


def poison(tensor: Tensor) -> Tensor:
    """A scalar that is 0 where all entries are finite, and not a number otherwise; nothing waits for a GPU."""
    if not tensor.numel():
        return tensor.new_zeros(())
    least, most = torch.aminmax(tensor)
    return least * 0 + most * 0


class HookMemory:
    """What is kept of each bucket, by the ids of its parameters in their order.

    `scaler`: what gradients are scaled by; errors follow when it changes. An error belongs to a parameter, and goes
    with it into other buckets; what a mode keeps doesn't. `steps`: those that are over, whether they overflowed or not.
    """

    def __init__(self, scaler: Scaler | None = None) -> None:
        self._scaler, self.steps = scaler, 0
        self._kept: dict[tuple[int, ...], Kept] = {}
        self._scale = self._scale_now = 1.0
        self._new: dict[tuple[int, ...], Kept] = {}
        self._poisons: list[Tensor] = []
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether a step is over that isn't settled yet."""
        return self._is_over

    @property
    def scale(self) -> float:
        """What the gradients of this step are multiplied by."""
        return self._scale_now

    @property
    def buckets(self) -> tuple[tuple[int, ...], ...]:
        """The buckets of the last step, in its order."""
        self.settle()
        return tuple(self._kept)

    def begin(self, is_first: bool, is_last: bool) -> None:
        """A bucket of a step comes: before its first one, the step before is settled."""
        if is_first:
            self.settle()
            self._scale_now = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        self._is_over = self._is_over or is_last

    def settle(self) -> None:
        """Take over what a step that is over has left; nothing of one that overflowed, or broke off."""
        if self._is_over:
            self.steps += 1
            if all(torch.isfinite(each) for each in self._poisons):
                self._take_over()
        self._new, self._poisons, self._is_over = {}, [], False

    def of(self, key: tuple[int, ...], lengths: Sequence[int]) -> Kept:
        """What is kept of a bucket, its error in the scale of the gradients that come now."""
        if key not in self._kept:
            self._split(set(key))
        kept = self._kept.get(key) or self._joined(key, tuple(lengths))
        return kept if self._scale_now == self._scale else kept.scaled(self._scale_now / self._scale)

    def keep(self, key: tuple[int, ...], kept: Kept) -> None:
        """Of a bucket, once the step is over."""
        self._new[key] = kept

    def look(self, mean: Tensor) -> None:
        """See whether a bucket's mean, the same in all ranks, says that the step has overflowed."""
        self._poisons.append(poison(mean))

    # -- other buckets than before -------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        for key in self._new:
            for each in key:
                self._kept.pop((each,), None)
            self._kept.pop(key, None)
        self._kept.update(self._new)
        self._scale = self._scale_now

    def _split(self, parameters: set[int]) -> None:
        """Keep errors by parameter of the buckets that share one with another bucket."""
        for key in [key for key in self._kept if len(key) > 1 and not parameters.isdisjoint(key)]:
            kept = self._kept.pop(key)
            lengths = list(kept.lengths)
            errors = [None] * len(key) if kept.error is None else kept.error.split(lengths)
            entries = {name: tensor.split(lengths) for name, tensor in kept.entries.items()}
            for number, (each, length) in enumerate(zip(key, lengths, strict=True)):
                own = {name: parts[number] for name, parts in entries.items()}
                self._kept[each,] = Kept((length,), errors[number], entries=own)

    def _joined(self, key: tuple[int, ...], lengths: tuple[int, ...]) -> Kept:
        parts = [self._kept.get((each,), Kept((length,))) for each, length in zip(key, lengths, strict=True)]
        names = dict.fromkeys(name for part in parts for name in part.entries)
        entries = {name: _filled([part.entries.get(name) for part in parts], lengths) for name in names}
        error = _filled([part.error for part in parts], lengths)
        return Kept(lengths, error, entries={name: tensor for name, tensor in entries.items() if tensor is not None})

    # -- saved and loaded ----------------------------------------------------------------------------------------------

    def data(self, names: Mapping[int, str]) -> dict[str, object]:
        """Plain values and tensors; `names`: of parameters, by id."""
        self.settle()
        return {
            "buckets": [[names[each] for each in key] for key in self._kept],
            "kept": [
                {
                    "lengths": list(kept.lengths),
                    "error": kept.error,
                    "memory": dict(kept.memory),
                    "step": kept.step,
                    "entries": dict(kept.entries),
                }
                for kept in self._kept.values()
            ],
            "scale": self._scale,
            "steps": self.steps,
        }

    def loaded(self, data: Mapping[str, Any], parameters: Mapping[str, torch.nn.Parameter]) -> HookMemory:
        """What `data` gave, with this one's scaler; raises `InputError` that names the first parameter that differs."""
        memory = HookMemory(self._scaler)
        for names, row in zip(data["buckets"], data["kept"], strict=True):
            for name, length in zip(names, row["lengths"], strict=True):
                _check(name, length, parameters)
            key, device = tuple(id(parameters[name]) for name in names), parameters[names[0]].device
            tree = torch.utils._pytree  # noqa: SLF001
            row = tree.tree_map_only(torch.Tensor, lambda tensor, to=device: tensor.to(to), dict(row))
            entries = dict(row.get("entries", {}))  # what older versions saved has none
            memory._kept[key] = Kept(tuple(row["lengths"]), row["error"], row["memory"], row["step"], entries)
        memory._scale, memory.steps = float(data["scale"]), int(data["steps"])
        return memory


def _filled(parts: Sequence[Tensor | None], lengths: Sequence[int]) -> Tensor | None:
    """One after the other, zeros for those that aren't there; None where none is."""
    there = next((part for part in parts if part is not None), None)
    if there is None:
        return None
    rows = zip(parts, lengths, strict=True)
    return torch.cat([there.new_zeros(length) if part is None else part for part, length in rows])


def _check(name: str, length: int, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    if name not in parameters:
        raise InputError(f"state: parameter {name!r} must be in the model; load what a run of this model saved")
    check_entries(name, length, parameters[name].numel())


def check_entries(name: str, saved: int, own: int) -> None:
    """Raise `InputError` where a parameter has not as many entries as in what was saved."""
    if saved != own:
        rule = f"state: parameter {name!r} must have {saved} entries as in what was saved, got {own}"
        raise InputError(f"{rule}; load what a run of this model saved")


class FeedbackState:
    """What hooks keep that send in modes: the process group, and what wasn't sent, to be added to the next gradients.

    `group`: None for the default one; it must be DDP's. `scaler`: the `GradScaler` that scales the loss, if one does:
    when the scale changes, errors must follow. In a step that overflows in any rank, means aren't finite in all of
    them, and what is kept is as before the step.
    """

    def __init__(
        self, group: torch.distributed.ProcessGroup | None, error_feedback: bool, scaler: Scaler | None
    ) -> None:
        self.group, self.error_feedback = group, error_feedback
        self._memory = HookMemory(scaler)
        self._is_checked = self._is_idle = False

    def _begin(self, bucket: torch.distributed.GradBucket, is_lossy: bool) -> None:
        """A bucket of a step comes; once, see that the hook averages over the ranks that DDP does."""
        if not self._is_checked and torch.distributed.is_initialized():
            ddp = owner_of(self)
            if ddp is not None:
                check_owner(ddp, self.group, self.error_feedback and is_lossy)
        self._is_checked = True
        self._memory.begin(bucket.index() == 0, bucket.is_last())

    def _given(
        self, gradient: torch.Tensor, shapes: Sequence[tuple[int, ...]], number: int, kept: Kept, is_lossy: bool
    ) -> Bucket:
        """A copy of a gradient, with what was not sent before; no number of it is one if any overflowed."""
        if kept.error is not None:
            gradient = gradient + kept.error
        elif is_lossy:
            gradient = gradient.clone()
        if is_lossy:
            gradient.add_(poison(gradient))
        ranks = rank_count(self.group)
        rank = torch.distributed.get_rank(self.group) if ranks > 1 else 0
        memory, entries = dict(kept.memory), dict(kept.entries)
        return Bucket(gradient, shapes, rank, ranks, number, kept.step, memory, kept.error, entries, self._memory.scale)

    def _keep(self, key: tuple[int, ...], lengths: tuple[int, ...], given: Bucket, method: Method) -> None:
        """What is left of a gradient once all messages are made, nothing in an exact mode."""
        error = given.gradient if self.error_feedback and method.feeds_back else None
        entries = {name: given.entries[name] for name in method.entrywise if name in given.entries}
        self._memory.keep(key, Kept(lengths, error, given.memory, given.step + 1, entries))

    def _rebuild(self, ddp: torch.nn.parallel.DistributedDataParallel, buckets: Sequence[Sequence[str]]) -> None:
        """Let DDP have these buckets; what it reduces meanwhile is zero."""
        self._is_idle = True
        try:
            rebuild_buckets(ddp, buckets)
        finally:
            self._is_idle = False
