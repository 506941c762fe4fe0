"""The layers of any module that FSDP2 is to wrap one by one: blocks of a list, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from gapless.errors import InputError
from gapless.torch.library import Module, torch, tree_flatten

__all__ = ["layers_of", "when_gradient_is_there"]

_LISTS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


def layers_of(model: Module, patterns: Sequence[str] = ()) -> Mapping[str, Module]:
    """Modules by name that have all parameters, each in one of them, in the order in which the model holds them.

    Without patterns they are what people wrap: the entries of each list that isn't in an entry of another, and the
    modules beside those lists. `patterns`: of names instead, such as `blocks.*`; of modules in each other the outer one
    is taken. Raises `InputError` for parameters in no layer or in two.
    """
    found = dict(_matching(model, patterns) if patterns else _held(model, ""))
    owner: dict[int, str] = {}
    for name, layer in found.items():
        for parameter in layer.parameters():
            if owner.setdefault(id(parameter), name) != name:
                way_out = "untie it, or name a module that holds both"
                raise InputError(f"model: layers {owner[id(parameter)]} and {name} share a parameter; {way_out}")
    for name, parameter in model.named_parameters():
        if id(parameter) not in owner:
            held, _, _ = name.rpartition(".")
            way_out = f"name {held!r} in layers" if held else "give it a module of its own"
            raise InputError(f"model: parameter {name} must be in a layer, which is what is wrapped; {way_out}")
    return found


def _held(module: Module, name: str) -> Iterator[tuple[str, Module]]:
    for child, held in module.named_children():
        path = f"{name}.{child}" if name else child
        if not any(True for _ in held.parameters()):
            continue
        has_lists = any(isinstance(each, torch.nn.ModuleList | torch.nn.ModuleDict) for each in held.modules())
        is_block = isinstance(module, _LISTS)
        if isinstance(held, _LISTS) or (has_lists and not is_block):
            yield from _held(held, path)
        else:
            yield path, held


def _matching(model: Module, patterns: Sequence[str]) -> Iterator[tuple[str, Module]]:
    unused, within = set(patterns), ""
    for name, module in model.named_modules():
        hit = {pattern for pattern in patterns if fnmatchcase(name, pattern)}
        unused -= hit
        if hit and not (within and name.startswith(within)) and any(True for _ in module.parameters()):
            within = f"{name}."
            yield name, module
    if unused:
        raise InputError(f"layers: no module of the model is named {min(unused)!r}")


def when_gradient_is_there(output: object, call: Callable[[], None]) -> None:
    """Call when a backward pass has the gradient of what a layer gave out: of the first tensor that gets any."""
    tensors = (each for each in tree_flatten(output)[0] if isinstance(each, torch.Tensor) and each.requires_grad)
    first = next(tensors, None)
    if first is not None:
        first.register_hook(lambda gradient: call())
