"""Running a rank's instructions. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.errors import RunError
from gapless.torch.library import torch, tree_flatten, tree_unflatten
from gapless.torch.sharding.execution.collectives import Exchange
from gapless.torch.sharding.execution.program import Change, Instruction, Operation, Slot

__all__ = ["called", "run_instructions"]


def run_instructions(instructions: Iterable[Instruction], values: list[object], exchange: Exchange) -> None:
    """Run instructions on the values in their slots, each freed after its last use.

    Raises `RunError` where an op makes a part of another shape than its layout says.
    """
    with torch.no_grad():
        for instruction in instructions:
            if isinstance(instruction, Change):
                given = values[instruction.source.number]
                assert isinstance(given, torch.Tensor)
                values[instruction.slot.number] = exchange.change(given, instruction.steps)
                del given
            else:
                values[instruction.slot.number] = called(instruction, values)
            for slot in instruction.frees:
                values[slot.number] = None


def called(operation: Operation, values: list[object]) -> object:
    """What an op makes of the values in its slots. Raises as `run_instructions`."""
    leaves, structure = tree_flatten((tuple(operation.arguments), dict(operation.options)))
    arguments, options = tree_unflatten(
        [values[leaf.number] if isinstance(leaf, Slot) else leaf for leaf in leaves], structure
    )
    made = operation.function(*arguments, **options)
    found = made if isinstance(made, tuple | list) else (made,)
    for value, shape in zip(found, operation.shapes, strict=False):
        if shape is not None and isinstance(value, torch.Tensor) and tuple(value.shape) != shape:
            rule = f"{operation.name}: made a part of shape {list(value.shape)}, its layout has {list(shape)}"
            raise RunError(f"{rule}; this op can't be run in these layouts")
    return made
