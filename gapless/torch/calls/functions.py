"""A planned call in autograd: its outputs are of one function, and the gradients of each segment are of another.

Segments hang on each other by tokens, so that autograd runs them in the plan's order, and gives the gradients of each
away, to hooks and all-reduces, before the next begins. Within a segment autograd keeps no order of its own. Where
somebody sees the order, hooks or ranks whose buckets wait for their last, each gradient goes through a view that was
made before those of earlier ones, since autograd runs first what was made last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

from gapless.torch.calls.beside import Beside
from gapless.torch.calls.code import Running, Segment
from gapless.torch.library import Tensor, torch, uncast

__all__ = ["Flight", "outputs_of"]

_Like: TypeAlias = tuple[torch.Size, torch.dtype, torch.device]

_CHANGED = (
    "a parameter or argument of a planned call was changed in place between its forward and its backward pass; "
    "change it after backward(), as optimisers do"
)
_AGAIN = (
    "a planned call runs its backward pass once, and frees what it kept; call the model again in the place of "
    "retain_graph=True"
)
_SECOND = (
    "a planned call has no gradients of its gradients (create_graph=True), as penalties on gradients need; compute "
    "those by a copy of the model without plans, or by gapless.torch.unplanned(model)"
)


class Flight:
    """A call between its forward and its backward pass.

    `segments`: as of its program. `trained[k]`: the tensors that the k-th segment has gradients of; as autograd does,
    a backward pass is refused after one of them has changed. `differentiable`: the outputs that may get a gradient.
    `beside`: what to do about gradients that no plan is for; None where it is for all.
    """

    def __init__(
        self,
        running: Running,
        segments: Sequence[Segment],
        trained: Sequence[Sequence[Tensor]],
        differentiable: frozenset[int],
        beside: Beside | None = None,
    ) -> None:
        self.segments, self.trained, self.differentiable = segments, trained, differentiable
        self._running, self._versions = running, _versions(trained)
        self.beside, self.others = beside, [] if beside is None else beside.others
        self._unplanned: list[Tensor | None] | None = None
        self._is_over = False
        self._ready: list[Tensor] = []
        self._with_gradient: frozenset[int] = frozenset()

    def forward(self) -> tuple[Tensor, ...]:
        """Run until the outputs are there; autograd writes on what it gets, so that it gets tensors of its own."""
        with uncast():
            return tuple(output.detach() for output in next(self._running))

    def backward(self, tangents: Sequence[Tensor | None], like: Sequence[_Like]) -> None:
        """Take the gradients of the outputs; None for one that the loss doesn't depend on."""
        if torch.is_grad_enabled():  # autograd would take what comes for a constant, and leave it out in silence
            raise RuntimeError(_SECOND)
        if _versions(self.trained) != self._versions:
            raise RuntimeError(_CHANGED)
        self._with_gradient = frozenset(number for number, tangent in enumerate(tangents) if tangent is not None)
        if self.beside is not None and self._with_gradient & self.beside.call.beside:
            self._run_again(self.beside, tangents)
            return
        unread = frozenset[int]() if self.beside is None else self.beside.call.beside
        read = self.differentiable - unread  # zeros for others would be memory that no plan knows of
        filled = [
            torch.zeros(shape, dtype=dtype, device=device) if tangent is None and number in read else tangent
            for number, (tangent, (shape, dtype, device)) in enumerate(zip(tangents, like, strict=True))
        ]
        try:
            with uncast():
                self._ready = self._running.send(filled)
            self._is_over = True
        except StopIteration:
            raise RuntimeError(_AGAIN) from None

    def _run_again(self, beside: Beside, tangents: Sequence[Tensor | None]) -> None:
        if self._is_over:
            raise RuntimeError(_AGAIN)
        self._running.close()
        self._is_over = True
        self._unplanned = beside.gradients([*chain(*self.trained), *self.others], tangents)

    def gradients_of_others(self) -> tuple[Tensor | None, ...]:
        """Of what no gradient of the loss is for."""
        found = [None] * len(self.others) if self._unplanned is None else self._unplanned[-len(self.others) :]
        return tuple(found[: len(self.others)])

    def gradients(self, number: int) -> tuple[Tensor | None, ...]:
        """Of a segment: None for what no output with a gradient depends on."""
        if self._unplanned is not None:
            begin = sum(map(len, self.trained[:number]))
            return tuple(self._unplanned[begin : begin + len(self.trained[number])])
        if number:
            with uncast():
                self._ready = next(self._running)
        needs = self.segments[number].needs
        found = tuple(
            gradient if needed & self._with_gradient else None
            for gradient, needed in zip(self._ready, needs, strict=True)
        )
        self._ready.clear()  # the code that runs holds the list, too
        if number + 1 == len(self.segments):
            self._running.close()
        return found


def outputs_of(flight: Flight) -> tuple[Tensor, ...]:
    """Run a call's forward pass, and let autograd know of its backward pass."""
    token, is_ordered = torch.empty(0), torch.distributed.is_available() and torch.distributed.is_initialized()
    for number in range(len(flight.segments) - 1, 0, -1):  # autograd runs what was made last first
        token = _Rest.apply(flight, number, token, *_given(flight.trained[number], is_ordered))
    first = _given(flight.trained[0], is_ordered)
    outputs: tuple[Tensor, ...] = _Outputs.apply(flight, token, *first, *flight.others)
    return outputs


def _given(trained: Sequence[Tensor], is_ordered: bool) -> Sequence[Tensor]:
    """What a segment has gradients of, as autograd is to see it."""
    if not is_ordered and not any(map(_is_hooked, trained)):
        return trained
    return [tensor.view_as(tensor) for tensor in reversed(trained)][::-1]


def _is_hooked(tensor: Tensor) -> bool:
    return bool(tensor._post_accumulate_grad_hooks or tensor._backward_hooks)  # noqa: SLF001


class _Outputs(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """The forward pass, and the first segment of the backward pass."""

    @staticmethod
    def forward(ctx: Any, flight: Flight, token: Tensor, *trained: Tensor) -> tuple[Tensor, ...]:
        outputs = flight.forward()
        ctx.flight, ctx.like = flight, [(output.shape, output.dtype, output.device) for output in outputs]
        ctx.set_materialize_grads(False)
        given = flight.differentiable
        ctx.mark_non_differentiable(*(output for number, output in enumerate(outputs) if number not in given))
        return outputs

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.flight.backward(tangents, ctx.like)
        return None, torch.empty(0), *ctx.flight.gradients(0), *ctx.flight.gradients_of_others()


class _Rest(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """A later segment of the backward pass."""

    @staticmethod
    def forward(ctx: Any, flight: Flight, number: int, token: Tensor, *trained: Tensor) -> Tensor:
        ctx.flight, ctx.number = flight, number
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, torch.empty(0), *ctx.flight.gradients(ctx.number)


def _versions(trained: Sequence[Sequence[Tensor]]) -> list[list[int]]:
    return [[tensor._version for tensor in tensors] for tensors in trained]  # noqa: SLF001
