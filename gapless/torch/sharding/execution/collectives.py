"""Steps of a change of layout on a rank's part of a tensor, by collectives over the ranks of a mesh.

gloo's own reduce-scatter is an all-reduce and sends twice as much: there parts are exchanged and reduced here. Needs
the extra `torch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gapless.profiles.layouts.layouts import split_dimension
from gapless.profiles.layouts.transitions import Step
from gapless.torch.library import Tensor, torch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["Alone", "Exchange", "Sent", "size_of"]

distributed = torch.distributed

_REDUCED: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "P": ("SUM", torch.sum), "P(mask)": ("SUM", torch.sum), "P(avg)": ("AVG", torch.mean),
    "P(max)": ("MAX", torch.amax), "P(min)": ("MIN", torch.amin),
}  # fmt: skip
"""The reduction of terms: its name in `torch.distributed`, and on one rank along a dimension."""


class Pace(Protocol):
    """What holds a rank back as long as an emulated wire takes for a step that began at an instant of
    `time.monotonic`."""

    def __call__(self, step: Step, begin_s: float) -> None: ...


@dataclass
class Sent:
    """What this rank has sent: bytes and calls of collectives, by (kind, axis of the mesh)."""

    size_bytes: dict[tuple[str, int], int] = field(default_factory=dict)
    calls: dict[tuple[str, int], int] = field(default_factory=dict)

    def note(self, step: Step, sent_bytes: int) -> None:
        """One more collective."""
        key = step.kind, step.axis
        self.size_bytes[key] = self.size_bytes.get(key, 0) + sent_bytes
        self.calls[key] = self.calls.get(key, 0) + 1


class Exchange:
    """Changes of layouts on the ranks of a mesh, this process's part. `sent`: what it has sent since it was put there.

    `pace`: None for the wire as it is.
    """

    def __init__(self, mesh: DeviceMesh, pace: Pace | None = None) -> None:
        self.mesh, self.pace, self.sent = mesh, pace, Sent()
        self.place: tuple[int, ...] = tuple(mesh.get_coordinate() or ())
        self._groups = mesh.get_all_groups()

    def change(self, local: Tensor, steps: Iterable[Step]) -> Tensor:
        """This rank's part of a tensor after these steps."""
        for step in steps:
            begin_s = time.monotonic()
            local, sent_bytes = getattr(self, f"_{step.kind}")(local, step)
            if sent_bytes:
                if self.pace is not None:
                    self.pace(step, begin_s)
                self.sent.note(step, sent_bytes)
        return local

    def slice(self, whole: Tensor, dimension: int, axis: int) -> Tensor:
        """This rank's part of what all along an axis have; memory of its own."""
        part = whole.chunk(self.mesh.size(axis), dimension)[self.place[axis]]
        return part.clone(memory_format=torch.contiguous_format)

    def _slice(self, local: Tensor, step: Step) -> tuple[Tensor, int]:
        return self.slice(local, _dimension(step.after), step.axis), 0

    def _split(self, local: Tensor, step: Step) -> tuple[Tensor, int]:
        """Terms of a sum: all of it on the first rank. Of others than sums each has the whole."""
        is_sum = _REDUCED[step.after][0] == "SUM"
        return (torch.zeros_like(local) if is_sum and self.place[step.axis] else local), 0

    def _all_reduce(self, local: Tensor, step: Step) -> tuple[Tensor, int]:
        made = local.clone(memory_format=torch.contiguous_format)
        self._sum(made, step)
        return made, _share(made, 2 * (self._ranks(step) - 1), self._ranks(step))

    def _all_gather(self, local: Tensor, step: Step) -> tuple[Tensor, int]:
        made = local.new_empty((self._ranks(step), *local.shape))
        self._gather(made, local.contiguous(), step)
        return _joined(made, _dimension(step.before)), _share(local, self._ranks(step) - 1, 1)

    def _all_to_all(self, local: Tensor, step: Step) -> tuple[Tensor, int]:
        made = self._swapped(local, step)
        return _joined(made, _dimension(step.before)), _share(local, self._ranks(step) - 1, self._ranks(step))

    def _reduce_scatter(self, local: Tensor, step: Step) -> tuple[Tensor, int]:
        ranks = self._ranks(step)
        if self.mesh.device_type == "cpu":
            made = _REDUCED[step.before][1](self._swapped(local, step), 0)
        else:
            parts = [part.contiguous() for part in local.chunk(ranks, _dimension(step.after))]
            made = torch.empty_like(parts[0])
            operation = getattr(distributed.ReduceOp, _REDUCED[step.before][0])
            distributed.reduce_scatter(made, parts, operation, self._groups[step.axis])
        return made, _share(local, ranks - 1, ranks)

    def _swapped(self, local: Tensor, step: Step) -> Tensor:
        """This rank's part along the dimension that is split then, as each along the axis has it: (ranks, part)."""
        given = torch.stack(local.chunk(self._ranks(step), _dimension(step.after)))
        made = torch.empty_like(given)
        self._swap(made, given, step)
        return made

    def _sum(self, made: Tensor, step: Step) -> None:
        operation = getattr(distributed.ReduceOp, _REDUCED[step.before][0])
        distributed.all_reduce(made, operation, self._groups[step.axis])

    def _gather(self, made: Tensor, local: Tensor, step: Step) -> None:
        distributed.all_gather(list(made.unbind()), local, self._groups[step.axis])

    def _swap(self, made: Tensor, given: Tensor, step: Step) -> None:
        distributed.all_to_all_single(made, given, group=self._groups[step.axis])

    def _ranks(self, step: Step) -> int:
        return int(self.mesh.size(step.axis))


class Alone(Exchange):
    """Stand-ins for collectives, with what a rank copies in them: its own part in the place of all others'."""

    def _sum(self, made: Tensor, step: Step) -> None:
        pass

    def _gather(self, made: Tensor, local: Tensor, step: Step) -> None:
        made.copy_(local.expand_as(made))

    def _swap(self, made: Tensor, given: Tensor, step: Step) -> None:
        made.copy_(given)


def _joined(parts: Tensor, dimension: int) -> Tensor:
    """Parts, shape (ranks, ...), one after the other along a dimension."""
    return parts.flatten(0, 1) if dimension == 0 else torch.cat(parts.unbind(), dimension)


def _dimension(part: str) -> int:
    dimension = split_dimension(part)
    assert dimension is not None, part
    return dimension


def size_of(tensor: Tensor) -> int:
    """The bytes of a tensor's numbers."""
    return int(tensor.numel()) * int(tensor.element_size())


def _share(tensor: Tensor, numerator: int, denominator: int) -> int:
    """Of a tensor's bytes, rounded up."""
    return -(-size_of(tensor) * numerator // denominator)
