"""The joint graph of a training step as data: an fx graph module, and what its inputs and outputs are.

With the kinds of implementations of PyTorch's operators that are close to eager's, not equal bit by bit: only what is
asked for is offered. Needs no PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["ATTENTION", "CLOSE", "LOSS", "NORM", "TOLERANCE", "JointGraph", "RefusedOp", "Role"]

ATTENTION, LOSS, NORM = "attention", "loss", "norm"
CLOSE = (ATTENTION, LOSS, NORM)

TOLERANCE = 1e-4
"""The most that a whole step may be off eager's by default: above what these come to in 32 bits."""


class RefusedOp(InputError):  # noqa: N818
    """An operator was traced that a plan can't run. `operator`: its name without its overload, or "token" for one that
    looks at whether it succeeded."""

    def __init__(self, message: str, operator: str) -> None:
        super().__init__(message)
        self.operator = operator


@dataclass(frozen=True)
class Role:
    """What an input or output of the joint graph is.

    `kind`: "parameter", "buffer" (as an output: its new value), "input", "tangent" (the gradient of an output),
    "output", "gradient" (of a parameter) or "input gradient". `name`: of the parameter or buffer; `index`: of the input
    or output.
    """

    kind: str
    name: str = ""
    index: int = 0


@dataclass(frozen=True)
class JointGraph:
    """A captured step: `module` is an fx graph module; a role for each of its placeholders and of its outputs.

    An output that isn't there, as the gradient of what needs none, has no role.
    """

    module: torch.fx.GraphModule
    inputs: dict[torch.fx.Node, Role]
    outputs: tuple[tuple[torch.fx.Node, Role], ...]

    @property
    def constants(self) -> dict[torch.fx.Node, torch.Tensor]:
        """The tensors that the module holds itself, by the nodes that read them."""
        nodes = [node for node in self.module.graph.nodes if node.op == "get_attr"]
        return {node: getattr(self.module, node.target) for node in nodes}
