"""A plan for buffers of any length: shares that its chunks don't divide are padded, as the library needs none."""

from __future__ import annotations

from gapless.torch.collectives.executor import PlannedCollective
from gapless.torch.library import torch

__all__ = ["DIVIDED_INPUT", "DIVIDED_OUTPUT", "FittedCollective"]

DIVIDED_INPUT = frozenset({"alltoall", "reducescatter"})
"""Collectives whose inputs have a share for each rank."""
DIVIDED_OUTPUT = frozenset({"allgather", "alltoall"})
"""Collectives whose outputs have a share from each rank."""


class FittedCollective:
    """A plan that is called with flat buffers as the library's function takes them.

    What is padded is copied, there and back; where the plan's chunks divide a share, nothing is.
    """

    def __init__(self, plan: PlannedCollective) -> None:
        self.plan = plan
        collective, ranks = plan.collective, plan.collective.rank_count
        self._has = tuple(bool(buffers[plan.rank]) for buffers in (collective.inputs, collective.outputs))
        self._shares = tuple(ranks if collective.name in divided else 1 for divided in (DIVIDED_INPUT, DIVIDED_OUTPUT))
        side = 0 if self._has[0] else 1
        self._chunks = len((collective.inputs, collective.outputs)[side][plan.rank]) // self._shares[side]

    def __call__(self, given: torch.Tensor, output: torch.Tensor) -> None:
        """`given` in, `output` out, both flat; they may be the same memory where the library's may be.

        On a rank that gives, or gets, nothing, that buffer is not looked at.
        """
        has_input, has_output = self._has
        length = given.numel() // self._shares[0] if has_input else output.numel() // self._shares[1]
        padded = -(-length // max(self._chunks, 1)) * self._chunks
        if not has_input:
            given = output.new_empty(0)
        elif padded != length:
            given = torch.nn.functional.pad(given.view(self._shares[0], length), (0, padded - length)).flatten()
        if not has_output or padded == length:
            self.plan(given, output if has_output else None)
            return
        wide = self.plan(given, output.new_empty(self._shares[1] * padded))
        output.view(self._shares[1], length).copy_(wide.view(self._shares[1], padded)[:, :length])
