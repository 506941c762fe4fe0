"""PyTorch's Python bindings of operators: they reach the same kernels as a call by schema, in about half of the time.

Whether a binding does what the operator does for some kinds of arguments is tried out, on tensors without data: both
must ask for the same overload with the same arguments. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from gapless.torch.library import Argument, Made, Node, torch

from torch.utils._python_dispatch import TorchDispatchMode  # isort: skip  (after the line that names the extra)

__all__ = ["Bindings"]

_OWNERS = (torch._C._VariableFunctions, torch.Tensor)  # noqa: SLF001
"""Where bindings are: functions of tensors, and methods, which take the tensor first."""


class Bindings:
    """Finds the function to call in the place of an operator. `fake`: of each graph node, its tensor without data."""

    def __init__(self, fake: Mapping[Node, Made]) -> None:
        self._fake = fake
        self._found: dict[object, Callable[..., Made]] = {}

    def of(
        self, function: Callable[..., Made], arguments: Sequence[Argument], options: Mapping[str, Argument]
    ) -> Callable[..., Made]:
        """The binding for such arguments, the operator's own call where there is none; other functions as they are."""
        if type(function) is not torch._ops.OpOverload:  # noqa: SLF001
            return function
        key = (function, _kinds(tuple(arguments)), tuple((name, _kinds(part)) for name, part in options.items()))
        if key not in self._found:
            given = torch.fx.node.map_arg((tuple(arguments), dict(options)), self._fake.__getitem__)
            own: Callable[..., Made] = function._op  # type: ignore[attr-defined,unused-ignore]  # noqa: SLF001
            asked = _asked(own, *given)
            others = (getattr(owner, _name(function), None) for owner in _OWNERS)
            same = (other for other in others if other is not None and _is_same(_asked(other, *given), asked))
            self._found[key] = next(same, own)
        return self._found[key]


_Asked = tuple[object, tuple[Argument, ...], dict[str, Argument]]


class _Asking(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Notes the first operator that is asked for, and runs nothing."""

    asked: _Asked | None = None

    def __torch_dispatch__(
        self,
        func: Callable[..., Made],
        types: Sequence[type],
        args: Sequence[Argument] = (),
        kwargs: Mapping[str, Argument] | None = None,
    ) -> Made:
        self.asked = func, tuple(args), dict(kwargs or {})
        raise _NotedError


class _NotedError(Exception):
    """What was to be found out is."""


def _asked(
    function: Callable[..., Made], arguments: tuple[Argument, ...], options: dict[str, Argument]
) -> _Asked | None:
    """The operator that a call asks for, with its arguments; None where it takes no such arguments."""
    asking = _Asking()
    with torch.no_grad(), asking, contextlib.suppress(Exception):  # ours, or what another function of the name raises
        function(*arguments, **options)
    return asking.asked


def _is_same(one: _Asked | None, other: _Asked | None) -> bool:
    if one is None or other is None or one[0] is not other[0] or one[2].keys() != other[2].keys():
        return False
    return _alike(one[1], other[1]) and all(_alike(one[2][name], other[2][name]) for name in one[2])


def _alike(one: Argument, other: Argument) -> bool:
    """Whether two arguments are the same tensors, or equal."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    return type(one) is type(other) and bool(one == other)


def _kinds(argument: Argument) -> object:
    """What a binding goes by."""
    return tuple(map(_kinds, argument)) if isinstance(argument, tuple | list) else type(argument)


def _name(operator: Callable[..., Made]) -> str:
    return str(operator._schema.name).partition("::")[2]  # type: ignore[attr-defined,unused-ignore]  # noqa: SLF001
