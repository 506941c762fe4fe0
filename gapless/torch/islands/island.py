"""An eager island: a part of a model that runs by autograd itself, as one operator of a plan.

Its forward pass keeps autograd's graph until its backward pass, which asks that graph for gradients. What the graph
keeps of the island's own arguments and outputs is read from the plan's values at that time, so that a plan may free
and recompute them. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gapless.torch.library import Tensor, TreeSpec, torch, tree_flatten

__all__ = [
    "Body",
    "Entered",
    "Island",
    "IslandChanged",
    "Kept",
    "Output",
    "Returned",
    "filled",
    "is_plain",
    "island_times",
]

Body: TypeAlias = Callable[[Sequence[Tensor]], object]
"""Runs an island on its arguments' tensors, then its parameters."""

_PLAIN = (int, float, complex, bool, str, bytes, slice, type(None), torch.dtype, torch.device, torch.Size, torch.layout)


def is_plain(value: object) -> bool:
    """Whether a value that is no tensor holds none, and can be compared."""
    return isinstance(value, _PLAIN)


class IslandChanged(Exception):  # noqa: N818
    """An island returned something else than what was planned with. `title`: of the island; `what`: the difference."""

    def __init__(self, title: str, what: str) -> None:
        super().__init__(f"{title} {what}")
        self.title, self.what = title, what


@dataclass(frozen=True)
class Output:
    """A tensor that an island is given, or returns."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    has_gradient: bool

    @classmethod
    def of(cls, tensor: Tensor) -> Output:
        """That of a tensor."""
        place = tensor.device
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, place, tensor.requires_grad)

    def empty(self) -> Tensor:
        """A tensor like it, with nothing in it."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)


class _Saved:
    """A tensor that autograd keeps: itself, or how it lies in one of the plan's values, by its number."""

    __slots__ = ("number", "offset", "shape", "strides", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.number, self.shape, self.strides, self.offset = -1, tensor.shape, tensor.stride(), 0


class Kept:
    """Autograd's graph of a forward pass. `arguments`, `outputs`: their edges; None for what has no gradient.

    `size_bytes`: of the tensors that it keeps, those of parameters not counted.
    `values`: what autograd reads of the plan's values, set for the time of the backward pass.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.arguments: list[Any] = []
        self.outputs: list[Any] = []
        self.values: dict[int, Tensor] = {}


@dataclass(frozen=True)
class Returned:
    """What a run of an island gave. `shapes`: of `outputs`; `reads`: the values that its backward pass needs."""

    structure: TreeSpec
    parts: tuple[object, ...]
    shapes: tuple[Output, ...]
    outputs: list[Tensor]
    kept: Kept
    reads: frozenset[int]


@dataclass(frozen=True)
class Island:
    """A call of a part of a model, as it was when it was looked at.

    `body`: runs it. `argument_count`: of the tensors given, those before the parameters. `given`: what these are.
    `wanted`: those that get gradients. `structure`, `parts`: of what it returns, flat: constants, and the places of
    tensors among `outputs`. `reads`: what its backward pass needs of the plan's values, by number: arguments, then
    outputs; None while that is found out. `copied`: the values that it holds elsewhere too, and gets or gives copies
    of.
    `autocast`: the kinds and types that are on inside. `kept_bytes`: of autograd's graph; `peak_bytes` and
    `duration_s`: of its forward and backward pass. `is_repeatable`: it may be recomputed.
    """

    title: str
    body: Body
    argument_count: int
    given: tuple[Output, ...]
    wanted: tuple[int, ...]
    autocast: tuple[tuple[str, torch.dtype], ...]
    is_differentiable: bool
    structure: TreeSpec | None = None
    parts: tuple[object, ...] = ()
    outputs: tuple[Output, ...] = ()
    reads: frozenset[int] | None = None
    copied: frozenset[int] = frozenset()
    kept_bytes: int = 0
    peak_bytes: tuple[int, int] = (0, 0)
    duration_s: tuple[float, float] = (0.0, 0.0)
    is_repeatable: bool = True
    most_bytes: int = 0
    """The most that the tensors of autograd's graph may take, beyond which `note` is called with what they take."""
    note: Callable[[Island, int], None] = lambda _, __: None
    optional: frozenset[int] = frozenset()
    """Of `wanted`, by place: those whose gradient may be None, as autograd's is where nothing depends on it."""

    def forward(self, given: Sequence[Tensor], *_: object) -> tuple[Tensor | Kept, ...]:
        """The outputs, and what is kept. Raises `IslandChanged` where they are not as planned."""
        returned = self.run(given)
        self._check(returned)
        if returned.kept.size_bytes > self.most_bytes:
            self.note(self, returned.kept.size_bytes)
        return (*returned.outputs, returned.kept)

    def run(self, given: Sequence[Tensor]) -> Returned:
        """Run it, whatever it returns. Raises `IslandChanged` where it writes to its arguments."""
        kept, saved = Kept(), []
        values = kept.values  # the hooks hold no more than this, or they would hold themselves

        def pack(tensor: Tensor) -> _Saved:
            saved.append(_Saved(tensor.detach()))
            return saved[-1]

        def unpack(held: _Saved) -> Tensor:
            if held.tensor is not None:
                return held.tensor
            base = values[held.number]
            return base.as_strided(held.shape, held.strides, base.storage_offset() + held.offset)

        with torch.set_grad_enabled(self.is_differentiable), _autocast(self.autocast):
            entered = self._entered(given, kept)
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                arguments = entered[: self.argument_count]
                versions = [tensor._version for tensor in arguments]  # noqa: SLF001
                whole = self.body(entered)
                if versions != [tensor._version for tensor in arguments]:  # noqa: SLF001
                    raise IslandChanged(self.title, "writes to its arguments")
                parts, outputs, structure = _flat(whole, given)
                outputs = [
                    output.clone() if self.argument_count + number in self.copied else output
                    for number, output in enumerate(outputs)
                ]
        edge = torch.autograd.graph.get_gradient_edge
        kept.outputs = [edge(output) if output.requires_grad else None for output in outputs]
        plain = [output.detach() for output in outputs]
        reads = self._refer(saved, [*given[: self.argument_count], *plain])
        lasting = {_storage(tensor) for tensor in given}
        own = [held.tensor for held in saved if held.tensor is not None and _storage(held.tensor) not in lasting]
        kept.size_bytes = sum({_storage(tensor): tensor.numel() * tensor.element_size() for tensor in own}.values())
        return Returned(structure, parts, tuple(map(Output.of, outputs)), plain, kept, reads)

    def backward(
        self,
        kept: Kept,
        needed: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        begun: Sequence[Tensor | None],
        *_: object,
    ) -> tuple[Tensor | None, ...]:
        """The gradients of the tensors that want one. `needed`: the values that `reads` names, in their order.

        `begun`: for each that wants one, the sum of its gradients from elsewhere, to which these are added in turn.
        """
        kept.values.update(zip(sorted(self.reads or ()), needed, strict=True))
        ends = zip((*kept.arguments, *kept.outputs), (*begun, *gradients), strict=True)
        pairs = [(edge, gradient) for edge, gradient in ends if edge is not None and gradient is not None]
        edges, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(edges, kept.arguments, given, allow_unused=True)
        kept.values.clear()
        held = {_storage(tensor) for tensor in (*needed, *given)}
        made: list[Tensor | None] = []
        for place, gradient in enumerate(found):
            if gradient is None:
                made.append(None if place in self.optional else self.given[self.wanted[place]].empty().zero_())
            else:  # each has memory of its own, as of an operator
                made.append(gradient.clone() if _storage(gradient) in held else gradient)
                held.add(_storage(gradient))
        return tuple(made)

    def _entered(self, given: Sequence[Tensor], kept: Kept) -> list[Tensor]:
        """The tensors given as the island sees them: with gradients of their own, and edges of them in `kept`."""
        wanted = set(self.wanted) if self.is_differentiable else set()
        arguments = [
            tensor.clone() if number in self.copied else tensor.detach()
            for number, tensor in enumerate(given[: self.argument_count])
        ]
        inner = [number for number in range(self.argument_count) if number in wanted]
        if inner:  # not as leaves, which would hold the arguments' memory
            token = torch.empty(0, requires_grad=True)
            for number, tensor in zip(inner, Entered.apply(token, [arguments[k] for k in inner]), strict=True):
                arguments[number] = tensor
        parameters = [tensor.detach().requires_grad_() for tensor in given[self.argument_count :]]
        entered = [*arguments, *parameters]
        kept.arguments = [torch.autograd.graph.get_gradient_edge(entered[number]) for number in sorted(wanted)]
        return entered

    def _check(self, returned: Returned) -> None:
        if returned.structure != self.structure or len(returned.parts) != len(self.parts):
            raise IslandChanged(self.title, "returns another structure than before")
        for part, was in zip(returned.parts, self.parts, strict=True):
            if type(part) is not type(was) or part != was:
                raise IslandChanged(self.title, f"returns {part!r}, and {was!r} before")
        for output, planned in zip(returned.shapes, self.outputs, strict=True):
            if output.shape != planned.shape or output.dtype != planned.dtype:
                sizes = f"{list(output.shape)}, and {list(planned.shape)} before"
                raise IslandChanged(self.title, f"returns a tensor of {sizes}")

    def _refer(self, saved: Sequence[_Saved], values: Sequence[Tensor]) -> frozenset[int]:
        """Let autograd hold no memory of the plan's values, but say how what it needs lies in them; which it needs."""
        storages = [_storage(value) for value in values]
        for held in saved:
            tensor = held.tensor
            if tensor is None or tensor.layout != torch.strided or not tensor.numel():
                continue
            storage = _storage(tensor)
            numbers = [number for number, other in enumerate(storages) if other == storage]
            number = next((k for k in numbers if k not in self.copied and _covers(values[k], tensor)), None)
            if number is not None and (self.reads is None or number in self.reads):
                held.number, held.offset = number, tensor.storage_offset() - values[number].storage_offset()
                held.tensor = None
            elif numbers:
                held.tensor = tensor.clone()
        return frozenset(held.number for held in saved if held.tensor is None)


class Entered(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """Tensors that autograd takes for computed, without holding them."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None]:
        return None, None


def _flat(returned: object, given: Sequence[Tensor]) -> tuple[tuple[object, ...], list[Tensor], TreeSpec]:
    """What an island returns, flat: constants, and the places of its tensors, each of which has memory of its own."""
    flat, structure = tree_flatten(returned)
    held = {_storage(tensor) for tensor in given}
    places: dict[int, int] = {}
    parts: list[object] = []
    outputs: list[Tensor] = []
    for part in flat:
        if not isinstance(part, torch.Tensor):
            parts.append(part)
            continue
        if id(part) not in places:
            places[id(part)] = len(outputs)
            outputs.append(part.clone() if _storage(part) in held else part)
            held.add(_storage(part))
        parts.append(_Place(places[id(part)]))
    return tuple(parts), outputs, structure


@dataclass(frozen=True)
class _Place:
    """Of an output, in the place of a tensor."""

    number: int


def island_times(function: Callable[..., object]) -> tuple[float, int] | None:
    """Of a pass of an island, its seconds and peak; None for any other function."""
    island = getattr(function, "__self__", None)
    if not isinstance(island, Island):
        return None
    place = int(function.__name__ == "backward")
    return island.duration_s[place], island.peak_bytes[place]


def filled(parts: Sequence[object], outputs: Sequence[Tensor]) -> list[object]:
    """What an island returns, flat, with these outputs."""
    return [outputs[part.number] if isinstance(part, _Place) else part for part in parts]


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else -1  # noqa: SLF001


def _covers(value: Tensor, tensor: Tensor) -> bool:
    """Whether a tensor lies within the memory between the first and the last element of a value."""
    start = tensor.storage_offset() - value.storage_offset()
    return bool(value.dtype == tensor.dtype and start >= 0 and start + _extent(tensor) <= _extent(value))


def _extent(tensor: Tensor) -> int:
    return 1 + int(sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)))


@contextlib.contextmanager
def _autocast(kinds: Sequence[tuple[str, torch.dtype]]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for kind, dtype in kinds:
            stack.enter_context(torch.autocast(kind, dtype=dtype))
        yield
