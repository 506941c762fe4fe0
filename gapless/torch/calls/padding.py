"""Calls of other lengths padded to a few, so that a few plans do for all: `planned(model, budget, pad_to=64)`.

Places are added behind the others, in the arguments that `fills` names, and what comes of them is cut off the outputs.
That is right for a model that computes nothing for its outputs from such places, which only its author knows: so the
first padded call of a kind is compared with the same call unpadded, without gradients, and refused where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeAlias

from gapless.errors import InputError
from gapless.torch.library import Module, Tensor, TreeSpec, torch, tree_flatten, tree_unflatten

__all__ = ["Padder", "Padding"]

_FILLS: dict[str, float | None] = {
    "input_ids": 0, "attention_mask": 0, "token_type_ids": 0, "position_ids": 0, "inputs_embeds": 0.0, "labels": -100,
}  # fmt: skip
"""What models of `transformers` ignore in their arguments."""

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_Cut: TypeAlias = dict[int, frozenset[str]]
"""Of an output: its dimensions that are the length of an argument, and of which."""


@dataclass(frozen=True)
class Padding:
    """To which lengths calls of a model are padded, and with what.

    `to`: the next multiple of a number, or the next of some lengths. `fills`: by an argument's name, what its new
    places hold, None for an argument that stays as it is; by default as models of `transformers` name and ignore them.
    `dimension`: of the length, in all of them. `mask`: the argument that marks the places that count, which a padded
    call must have; None where the model needs none, as a causal one does whose loss ignores what `fills` adds.

    Raises `InputError` for lengths below 1 and for a mask without a fill.
    """

    to: int | Sequence[int]
    fills: Mapping[str, float | None] = field(default_factory=lambda: dict(_FILLS))
    dimension: int = 1
    mask: str | None = "attention_mask"

    def __post_init__(self) -> None:
        lengths = [self.to] if isinstance(self.to, int) else list(self.to)
        if not lengths or any(not isinstance(length, int) or length < 1 for length in lengths):
            raise InputError(f"pad_to: must be a length >= 1, or a list of such, got {self.to!r}")
        if self.dimension < 0:
            raise InputError(f"pad_to: dimension must be >= 0, got {self.dimension}")
        if self.mask is not None and self.fills.get(self.mask) is None:
            raise InputError(f"pad_to: fills must say what marks a place of {self.mask!r} that doesn't count")

    def length(self, length: int, name: str) -> int:
        """What a length is padded to. Raises `InputError` for one that is beyond all."""
        if isinstance(self.to, int):
            return math.ceil(length / self.to) * self.to
        found = min((each for each in self.to if each >= length), default=None)
        if found is None:
            raise InputError(f"pad_to: argument {name!r} has length {length}, more than the longest, {max(self.to)}")
        return found


class Padder:
    """Pads the calls of a model. `forward`: its own, for comparing."""

    def __init__(self, model: Module, forward: Callable[..., Any], padding: Padding) -> None:
        self._model, self._forward, self._padding = model, forward, padding
        self._signature = signature(forward)
        self._cuts: dict[tuple[object, ...], list[_Cut]] = {}

    def call(self, follow: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What `follow` returns for the padded arguments, cut to the lengths of these.

        Raises `InputError` where it isn't said how to pad an argument, and where padding shows in the outputs.
        """
        padded, lengths = self._padded(arguments, named)
        if not lengths:
            return follow(*padded[0], **padded[1])  # by place or by name as padded calls are
        parts, structure = tree_flatten(padded)
        shapes = [tuple(part.shape) if isinstance(part, torch.Tensor) else part for part in parts]
        key = (structure, *sorted(lengths), *shapes)
        cuts = self._cuts.get(key)
        if cuts is None or _is_open(cuts, lengths):
            cuts = self._cuts[key] = self._compared((arguments, named), padded, lengths, cuts)
        outputs, returned = tree_flatten(follow(*padded[0], **padded[1]))
        return _cut(outputs, returned, cuts, lengths)

    def _padded(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Arguments, dict[str, int]]:
        """The padded arguments, and the lengths of those that were shorter."""
        bound, fills, at = self._signature.bind(*arguments, **named), self._padding.fills, self._padding.dimension
        given = {name: value for name, value in _tensors(bound.arguments) if value.dim() > at}
        lengths: dict[str, int] = {}
        for name, value in given.items():
            fill, length = fills.get(name), value.shape[at]
            if fill is not None and (to := self._padding.length(length, name)) != length:
                lengths[name] = length
                _put(bound.arguments, name, _lengthened(value, at, to, fill))
        for name, value in given.items():
            if name not in fills and value.shape[at] in lengths.values():
                rule = f"pad_to: nothing says what goes behind argument {name!r}, as long as {min(lengths)!r}"
                raise InputError(f"{rule}; Padding(fills={{..., {name!r}: 0}}) does, or None to leave it as it is")
        mask = self._padding.mask
        if lengths and mask is not None and mask not in given:
            rule = f"pad_to: a padded call must have the argument {mask!r}, which marks the places that count"
            raise InputError(f"{rule}; pass it, or Padding(mask=None) for a model that needs none")
        return (bound.args, bound.kwargs), lengths

    def _compared(
        self, short: Arguments, padded: Arguments, lengths: dict[str, int], known: list[_Cut] | None
    ) -> list[_Cut]:
        """Where to cut outputs: what a call without gradients or dropout returns for short and for padded arguments."""
        for name, module in self._model.named_modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.training:  # noqa: SLF001
                rule = f"pad_to: module {name!r} takes statistics of all places, those that padding adds among them"
                raise InputError(f"{rule}; set it to .eval(), or leave pad_to out")
        with torch.no_grad(), _evaluating(self._model):
            wanted, structure = tree_flatten(self._forward(*short[0], **short[1]))
            longer, other = tree_flatten(self._forward(*padded[0], **padded[1]))
        if structure != other:
            raise InputError("pad_to: the model returns another structure for a padded call; leave pad_to out")
        tos = {name: self._padding.length(length, name) for name, length in lengths.items()}
        pairs = list(zip(wanted, longer, strict=True))
        cuts = [_cut_of(one, two, lengths, tos) if isinstance(one, torch.Tensor) else {} for one, two in pairs]
        if known is not None:
            cuts = [
                {at: names & old.get(at, names) for at, names in cut.items()}
                for cut, old in zip(cuts, known, strict=True)
            ]
        kept, _ = tree_flatten(_cut(longer, other, cuts, lengths))
        for number, (one, two) in enumerate(zip(wanted, kept, strict=True)):
            if isinstance(one, torch.Tensor) and not _are_close(one, two, self._model):
                rule = f"pad_to: output {number} of the model differs where its arguments are padded"
                raise InputError(f"{rule}, by more than rounding; pass a mask that it heeds, or leave pad_to out")
        return cuts


def _tensors(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors among a call's arguments, by name; those that a signature takes as `**named` by their own."""
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, dict):
            yield from ((key, part) for key, part in value.items() if isinstance(part, torch.Tensor))


def _put(arguments: dict[str, Any], name: str, value: Tensor) -> None:
    if name in arguments:
        arguments[name] = value
        return
    for key, held in arguments.items():
        if isinstance(held, dict) and name in held:
            arguments[key] = {**held, name: value}
            return


def _lengthened(value: Tensor, at: int, to: int, fill: float) -> Tensor:
    behind = [0, 0] * (value.dim() - 1 - at) + [0, to - value.shape[at]]
    return torch.nn.functional.pad(value, behind, value=bool(fill) if value.dtype == torch.bool else fill)


def _cut_of(short: Tensor, padded: Tensor, lengths: dict[str, int], tos: dict[str, int]) -> _Cut:
    """The dimensions in which an output is longer, and the arguments whose lengths these are."""
    found: _Cut = {}
    for at, sizes in enumerate(zip(short.shape, padded.shape, strict=True)):
        names = frozenset(name for name in lengths if (lengths[name], tos[name]) == sizes)
        if sizes[0] != sizes[1] and not names:
            rule = f"pad_to: an output has {sizes[1]} places for a padded call and {sizes[0]} without"
            raise InputError(f"{rule}, which is no argument's length; leave pad_to out, and let the collator pad")
        if sizes[0] != sizes[1]:
            found[at] = names
    return found


def _is_open(cuts: list[_Cut], lengths: dict[str, int]) -> bool:
    """Whether it isn't known of which argument's length an output is, and these lengths differ."""
    return any(len({lengths.get(name) for name in names}) > 1 for cut in cuts for names in cut.values())


def _cut(outputs: list[Any], structure: TreeSpec, cuts: list[_Cut], lengths: dict[str, int]) -> Any:
    if len(outputs) != len(cuts):
        rule = "pad_to: the model returns other outputs in training than in evaluation, by which padding is compared"
        raise InputError(f"{rule}; leave pad_to out, and let the collator pad")
    for number, cut in enumerate(cuts):
        for at, names in cut.items():
            if (name := min(names)) in lengths:
                outputs[number] = outputs[number].narrow(at, 0, lengths[name])
    return tree_unflatten(outputs, structure)


def _are_close(one: Tensor, other: Tensor, model: Module) -> bool:
    """Whether two outputs are equal but for rounding: what half of the digits say."""
    if not one.dtype.is_floating_point:
        return bool(torch.equal(one, other))
    kinds = {one.dtype, *(each.dtype for each in model.parameters() if each.dtype.is_floating_point)}
    for device in ("cpu", "cuda"):
        kinds |= {torch.get_autocast_dtype(device)} if torch.is_autocast_enabled(device) else set()
    most = math.sqrt(max(torch.finfo(kind).eps for kind in kinds))
    norms = [float(torch.nan_to_num(tensor).norm()) for tensor in (one.double() - other.double(), one.double())]
    return bool(norms[0] <= most * norms[1])


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    """Let no module train, without what `.eval()` may do beside."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, was in modes:
            module.training = was
