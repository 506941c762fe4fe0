"""What a node of the joint graph is on one rank's parts: the same op, with sizes of parts where it takes sizes.

Random numbers are drawn for the whole tensor on every rank and cut, so that they are those of one process. Needs the
extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gapless.errors import InputError
from gapless.profiles.layouts.layouts import NodeLayout, is_partial, split_dimension
from gapless.profiles.layouts.transitions import local_shape
from gapless.torch.library import Argument, Made, Node, Tensor, torch
from gapless.torch.sharding.joint import tensor_arguments, tensors_of

__all__ = ["MEAN", "NLL", "LocalCall", "Place", "draws", "local_call", "mean_of_parts"]

aten = torch.ops.aten

_SIZES = {
    aten.view.default: 1, aten._unsafe_view.default: 1, aten.reshape.default: 1, aten.expand.default: 1,  # noqa: SLF001
    aten.new_empty.default: 1, aten.new_full.default: 1, aten.new_ones.default: 1, aten.new_zeros.default: 1,
    aten.select_backward.default: 1, aten.slice_backward.default: 1, aten.full.default: 0, aten.zeros.default: 0,
    aten.ones.default: 0, aten.empty.memory_format: 0,
}  # fmt: skip
"""The place of the argument that is the shape of what is returned."""
_BY_ELEMENTS = {
    aten.mse_loss_backward.default: 3, aten.smooth_l1_loss_backward.default: 3, aten.huber_loss_backward.default: 3,
    aten.binary_cross_entropy_backward.default: 4,
}  # fmt: skip
"""Gradients of losses that divide by the number of elements they see, and the place of the reduction."""
_VIEWS = (aten.view.default, aten._unsafe_view.default)  # noqa: SLF001
_SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
_ATTENTION = "scaled_dot_product"
NLL = (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
MEAN, _SUM = 1, 2
"""Reductions of losses."""


@dataclass(frozen=True)
class Place:
    """A rank's place in a mesh: a number along each axis."""

    mesh: tuple[int, ...]
    numbers: tuple[int, ...]

    def cut(self, whole: Tensor, layout: str) -> Tensor:
        """This rank's part of a tensor that it has whole; of terms, those of the first rank are all of it."""
        part = whole
        for axis, text in enumerate(layout.split(",")):
            dimension = split_dimension(text)
            if dimension is not None:
                part = part.chunk(self.mesh[axis], dimension)[self.numbers[axis]]
        return part if part is whole else part.clone(memory_format=torch.contiguous_format)

    def first(self, size: int, layout: str, dimension: int) -> int:
        """The index along a dimension of so many at which this rank's part begins."""
        begin = 0
        for axis, text in enumerate(layout.split(",")):
            if split_dimension(text) == dimension:
                size //= self.mesh[axis]
                begin += size * self.numbers[axis]
        return begin


@dataclass(frozen=True)
class LocalCall:
    """A function of local parts, with arguments as a node has them."""

    function: Callable[..., Made]
    arguments: tuple[Argument, ...]
    options: Mapping[str, Argument]


def draws(node: Node) -> bool:
    """Whether a node takes random numbers."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded not in tags:
        return False
    return _ATTENTION not in str(node.target) or _dropout_of(node) > 0


def _dropout_of(node: Node) -> float:
    names = [argument.name for argument in node.target._schema.arguments]  # noqa: SLF001
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    share = given.get("dropout_p", 0.0)
    return float(share) if isinstance(share, int | float) else 0.0


def local_call(node: Node, layout: NodeLayout, place: Place) -> LocalCall:
    """The call for a rank. Raises `InputError` for an op that can't be run on these parts."""
    target, is_cut = node.target, any("S" in each for each in (*layout.inputs, *layout.outputs))
    if draws(node) and is_cut:
        return LocalCall(_drawn(node, layout, place), node.args, node.kwargs)
    if not tensor_arguments(node) and is_cut and target not in _SIZES:
        return LocalCall(partial(_cut_of, target, place, layout.outputs[0]), node.args, node.kwargs)
    if target is aten.embedding.default and "P(mask)" in layout.outputs[0]:
        size = _whole(node, 0).shape[0]
        return LocalCall(partial(_rows, place.first(size, layout.inputs[0], 0)), node.args, node.kwargs)
    if target in _BY_ELEMENTS and node.args[_BY_ELEMENTS[target]] == MEAN:
        return LocalCall(partial(_scaled, target, _share(node, layout, place)), node.args, node.kwargs)
    if target in NLL and node.args[3] == MEAN and is_partial(layout.outputs[0]):
        return LocalCall(target, (*node.args[:3], _SUM, *node.args[4:]), node.kwargs)
    if target in _SQUEEZES:
        return LocalCall(aten.squeeze.dims, (node.args[0], _squeezed(node)), {})
    if target is aten.mkldnn_rnn_layer.default:
        raise InputError(f"{node.name}: PyTorch's fused recurrent layer runs in one process only; write it as a loop")
    if target is aten.as_strided.default and is_cut:
        raise InputError(f"{node.name}: as_strided looks into memory, which parts don't share; it must be whole")
    return LocalCall(aten.reshape.default if target in _VIEWS else target, _sized(node, layout, place), node.kwargs)


def _sized(node: Node, layout: NodeLayout, place: Place) -> tuple[Argument, ...]:
    """Arguments with the sizes of parts."""
    arguments = list(node.args)

    def shape_of(number: int) -> tuple[int, ...]:
        made = tensors_of(node)[number]
        assert made is not None
        return local_shape(tuple(made.shape), layout.outputs[number], place.mesh)

    if node.target in _SIZES:
        arguments[_SIZES[node.target]] = list(shape_of(0))
    if node.target is aten.new_empty_strided.default:
        shape = shape_of(0)
        arguments[1:3] = list(shape), list(torch.empty(shape, device="meta").stride())
    if node.target is aten.convolution_backward.default and arguments[3] is not None and layout.outputs[2]:
        arguments[3] = list(shape_of(2))
    groups = {aten.native_group_norm.default: (0, 3), aten.native_group_norm_backward.default: (1, 5)}
    if node.target in groups:
        given, first = groups[node.target]
        shape = local_shape(tuple(_whole(node, given).shape), layout.inputs[given], place.mesh)
        if shape[1] != _whole(node, given).shape[1]:
            raise InputError(f"{node.name}: channels of a group norm must be whole, got {layout.inputs[given]}")
        arguments[first] = shape[0]
    return tuple(arguments)


def _whole(node: Node, number: int) -> Tensor:
    made = tensors_of(tensor_arguments(node)[number])[0]
    assert made is not None
    return made


def _share(node: Node, layout: NodeLayout, place: Place) -> float:
    """Of the elements of an op's second input that a rank has."""
    whole = tuple(_whole(node, 1).shape)
    own = local_shape(whole, layout.inputs[1], place.mesh)
    return float(torch.Size(own).numel() / torch.Size(whole).numel())


def _squeezed(node: Node) -> list[int]:
    """The dimensions that go, which have size 1 as a whole."""
    sizes = _whole(node, 0).shape
    asked = node.args[1] if len(node.args) > 1 else list(range(len(sizes)))
    numbers = asked if isinstance(asked, Sequence) else [asked]
    return [number for number in numbers if isinstance(number, int) and sizes[number] == 1]


def _scaled(function: Callable[..., Tensor], share: float, *arguments: Argument, **options: Argument) -> Tensor:
    return function(*arguments, **options) * share


def mean_of_parts(made: tuple[Tensor, Tensor], weight: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """A rank's (sum, weight) of a loss as a term of a mean over so many parts, whose weight in all is `weight`."""
    return made[0] * parts / weight, made[1]


def _cut_of(
    function: Callable[..., Tensor], place: Place, layout: str, *arguments: Argument, **options: Argument
) -> Tensor:
    return place.cut(function(*arguments, **options), layout)


def _rows(first: int, table: Tensor, indices: Tensor, *options: Argument) -> Tensor:
    """What an embedding finds in a rank's rows of the table, which begin at `first`; zeros for the rows of others."""
    own = indices - first
    is_here = (own >= 0) & (own < len(table))
    found = aten.embedding.default(table, torch.where(is_here, own, 0))
    return torch.where(is_here.unsqueeze(-1), found, 0)


# -- random numbers ----------------------------------------------------------------------------------------------------


def _drawn(node: Node, layout: NodeLayout, place: Place) -> Callable[..., Made]:
    """A function that draws for the whole tensor and cuts."""
    if node.target is aten.native_dropout.default:
        return partial(_dropped, _empty_like(_whole(node, 0)), place, layout.outputs[1])
    if not tensor_arguments(node):
        return partial(_cut_of, node.target, place, layout.outputs[0])
    if node.target in (aten.bernoulli.p, aten.rand_like.default, aten.randn_like.default):
        return partial(_drawn_like, node.target, _empty_like(_whole(node, 0)), place, layout.outputs[0])
    raise InputError(f"{node.name}: {node.target} draws random numbers by its data; it must be whole on every device")


def _empty_like(given: Tensor) -> Callable[[], Tensor]:
    shape, strides, dtype = tuple(given.shape), given.stride(), given.dtype
    return lambda: torch.empty_strided(shape, strides, dtype=dtype)


def _drawn_like(
    function: Callable[..., Tensor], whole: Callable[[], Tensor], place: Place, layout: str, given: Tensor,
    *arguments: Argument, **options: Argument,
) -> Tensor:  # fmt: skip
    return place.cut(function(whole().to(given.device), *arguments, **options), layout)


def _dropped(
    whole: Callable[[], Tensor], place: Place, layout: str, given: Tensor, share: float, is_training: bool | None = True
) -> tuple[Tensor, Tensor]:
    """Dropout with the mask that one process draws."""
    _, kept = aten.native_dropout.default(whole().to(given.device), share, is_training)
    mask = place.cut(kept, layout)
    return given * mask * (1 / (1 - share) if is_training is not False and share < 1 else 1), mask
