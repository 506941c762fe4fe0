"""Batch norms that update their running statistics themselves, as eager's do, in the place of copies that go there.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.torch.capture.program import LASTS, CapturedStep, Operator
from gapless.torch.library import Argument, Made, Node, torch

__all__ = ["norm_in_place", "updating_norms"]

aten = torch.ops.aten
_FUNCTIONAL = aten._native_batch_norm_legit_functional.default  # noqa: SLF001
_BACKWARD = aten.native_batch_norm_backward.default
_MEAN, _VARIANCE = 3, 4
"""The places of running statistics among arguments, and of new ones among what is returned."""


def updating_norms(step: CapturedStep) -> dict[str, dict[Node, Node]]:
    """The batch norms whose running statistics nobody else reads, by name: new statistics, and the buffers of each."""
    operators = [operator for operator in step.operators if operator is not None and operator.calls]
    return {operator.name: new for operator in operators if (new := _new_statistics(step, operator))}


def _new_statistics(step: CapturedStep, operator: Operator) -> dict[Node, Node]:
    arguments = operator.calls[0].arguments
    if operator.calls[0].function is not _FUNCTIONAL or arguments[_MEAN + 2] is not True:
        return {}
    names = dict(step.updates)
    new = {place: value for value, place, holder in operator.values if holder == LASTS and place is not None}
    if new.keys() != {_MEAN, _VARIANCE}:
        return {}
    for place, value in new.items():
        role = step.roles.get(arguments[place])
        is_own = role is not None and names.get(value) == role.name and len(arguments[place].users) == 1
        if not is_own or not all(_ignores(user) for user in value.users):
            return {}
    return {value: arguments[place] for place, value in new.items()}


def _ignores(user: Node) -> bool:
    """Whether a node's result doesn't depend on running statistics: a gradient in training goes by the batch's own."""
    return user.op == "output" or (user.target is _BACKWARD and user.args[7] is True)


def norm_in_place(arguments: tuple[Argument, ...], is_first: bool) -> tuple[Callable[..., Made], tuple[Argument, ...]]:
    """The operator that updates statistics, with its arguments; one that has none where it runs again."""
    if is_first:
        return aten._native_batch_norm_legit.default, arguments  # noqa: SLF001
    return aten._native_batch_norm_legit.no_stats, (*arguments[:_MEAN], *arguments[_VARIANCE + 1 :])  # noqa: SLF001
