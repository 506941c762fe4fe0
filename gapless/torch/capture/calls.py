"""A call of a model as what is traced: its tensors are arguments, all else of it is a constant, and it returns tensors.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gapless.errors import InputError
from gapless.torch.library import Module, Tensor, TreeSpec, torch, tree_flatten, tree_unflatten, written_buffers

__all__ = ["GraphCall", "ModelCall"]


class ModelCall:
    """The module to trace for a call of a model, whose loss is computed elsewhere.

    `leaves`: the tensors among the arguments. `module`: takes these, and returns the tensors that `forward` returns,
    each once; `result` puts them where they were. What looks at other outputs or at arguments is copied there, since
    PyTorch's tracer knows no gradient of it. `loss_alone`: where what is returned has a scalar `loss`, others than
    scalars get no gradients; `beside` are the numbers of these.
    """

    returns_outputs = True
    objective = None
    target_count = 0

    def __init__(
        self,
        model: Module,
        forward: Callable[..., object],
        arguments: Sequence[object],
        named: Mapping[str, object],
        loss_alone: bool = False,
    ) -> None:
        parts, self.structure = tree_flatten((tuple(arguments), dict(named)))
        places = [place for place, part in enumerate(parts) if isinstance(part, torch.Tensor)]
        self.leaves = [parts[place] for place in places]
        self.module = _traced(self, model, forward, parts, places)
        self.beside: frozenset[int] = frozenset()
        self._loss_alone = loss_alone
        self._returned: TreeSpec | None = None
        self._parts: list[object] = []
        """What a call returns, flat: constants, and for a tensor its place among outputs."""

    @property
    def batch(self) -> int:
        """The first dimension of the first tensor."""
        shape: tuple[int, ...] = tuple(self.leaves[0].shape) if self.leaves else ()
        return max(shape[0], 1) if shape else 1

    def flat(self, returned: object, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The tensors of what the model returns, each once. Raises `InputError` for none."""
        parts, self._returned = tree_flatten(returned)
        outputs: list[Tensor] = []
        places: dict[int, _Place] = {}
        held = {_storage(argument) for argument in arguments}

        def note(part: Tensor) -> _Place:
            if id(part) not in places:
                places[id(part)] = _Place(len(outputs))
                outputs.append(part.clone() if _storage(part) in held else part)
                held.add(_storage(part))
            return places[id(part)]

        self._parts = [_emptied(part, note, {}) for part in parts]
        if not outputs:
            raise InputError("capture: the model returns no tensor that a gradient could come from")
        if not self._loss_alone or not _has_loss(returned):
            return tuple(outputs)
        self.beside = frozenset(number for number, part in enumerate(outputs) if part.dim() and part.requires_grad)
        return tuple(part.detach() if number in self.beside else part for number, part in enumerate(outputs))

    @contextmanager
    def with_all_gradients(self) -> Iterator[None]:
        """Let `module` return outputs that all have gradients."""
        before, self._loss_alone = self._loss_alone, False
        try:
            yield
        finally:
            self._loss_alone = before

    def result(self, outputs: Sequence[Tensor]) -> object:
        """What the model returns, with these outputs."""
        assert self._returned is not None, "traced first"
        return tree_unflatten([_filled(part, outputs) for part in self._parts], self._returned)


@dataclass(frozen=True)
class GraphCall:
    """A call of a graph that others have traced. `leaves`: tensors without data, one for each that it takes."""

    leaves: Sequence[Tensor]
    batch: int
    returns_outputs = True
    objective = None
    target_count = 0

    @property
    def structure(self) -> TreeSpec:
        """That of the arguments."""
        return tree_flatten(tuple(self.leaves))[1]


def _has_loss(returned: object) -> bool:
    """Whether a scalar is named so."""
    loss = returned.get("loss") if isinstance(returned, Mapping) else getattr(returned, "loss", None)
    return isinstance(loss, torch.Tensor) and not loss.dim() and loss.requires_grad


class _Place:
    """Of an output, in the place of a tensor."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass(frozen=True)
class _Shell:
    """Of an object that holds tensors, such as a cache: its class and what it holds."""

    kind: type
    held: dict[str, object]


def _emptied(part: object, note: Callable[[Tensor], _Place], seen: dict[int, object]) -> object:
    """What a model returns with places instead of tensors; an object without any is a constant."""
    if isinstance(part, torch.Tensor):
        return note(part)
    if id(part) in seen or isinstance(part, type | torch.nn.Module):
        return seen.get(id(part), part)
    seen[id(part)] = part
    if type(part) in (list, tuple):
        return type(part)(_emptied(each, note, seen) for each in part)  # type: ignore[call-arg,attr-defined]
    if type(part) is dict:
        return {name: _emptied(each, note, seen) for name, each in part.items()}
    if not isinstance(getattr(part, "__dict__", None), dict):
        return part
    held = {name: _emptied(each, note, seen) for name, each in vars(part).items()}
    seen[id(part)] = _Shell(type(part), held) if any(map(_has_place, held.values())) else part
    return seen[id(part)]


def _has_place(part: object) -> bool:
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
    return isinstance(part, _Place | _Shell) or any(map(_has_place, inner))


def _filled(part: object, outputs: Sequence[Tensor]) -> object:
    if isinstance(part, _Place):
        return outputs[part.number]
    if isinstance(part, _Shell):
        made: object = object.__new__(part.kind)
        vars(made).update({name: _filled(each, outputs) for name, each in part.held.items()})
        return made
    if type(part) in (list, tuple):
        return type(part)(_filled(each, outputs) for each in part)  # type: ignore[call-arg,attr-defined]
    return {name: _filled(each, outputs) for name, each in part.items()} if type(part) is dict else part


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001


def _traced(
    call: ModelCall, model: Module, forward: Callable[..., object], parts: list[object], places: list[int]
) -> Module:
    class Called(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
            filled = list(parts)
            for place, leaf in zip(places, leaves, strict=True):
                filled[place] = leaf
            arguments, named = tree_unflatten(filled, call.structure)
            with written_buffers(self.model):
                return call.flat(forward(*arguments, **named), leaves)

    traced = Called()
    traced.training = model.training  # without touching the modes of the model's parts
    return traced
