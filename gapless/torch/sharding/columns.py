"""Which weights of a model are split by columns and which by rows, as Megatron-LM has it for transformers.

A product whose input comes from other products alone, with no normalisation between, adds up what those have split:
attention's output projection, and the second half of a feed-forward block. Needs the extra `torch`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.torch.joint_graph import JointGraph
from gapless.torch.library import Node, torch
from gapless.torch.sharding.joint import is_backward

__all__ = ["split_weights"]

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm.default: 0, _aten.addmm.default: 1}
"""With the place of the first factor."""
_TURNS = {_aten.t.default: True, _aten.alias.default: False}
"""What a weight goes through, and whether it is turned there."""
_NORMS = ("norm", "rsqrt")


@dataclass(frozen=True)
class _Product:
    """`weight` enters it through an odd number of transpositions where `is_turned`: its rows are outputs then."""

    source: Node
    weight: Node
    is_turned: bool
    bias: Node | None


def split_weights(joint: JointGraph) -> dict[Node, int]:
    """The dimension of each weight, and of each bias that is split with it, by which tensor parallelism splits it."""
    parameters = {node for node, role in joint.inputs.items() if role.kind == "parameter"}
    products = {
        node: product
        for node in joint.module.graph.nodes
        if node.target in _PRODUCTS and (product := _product(node, parameters)) is not None
    }
    rows: set[Node] = set()
    columns: set[Node] = set()
    for node, product in products.items():
        sources = _sources(product.source, products)
        if sources and not sources & rows:
            rows.add(node)
            columns |= sources
    found: dict[Node, int] = {}
    for node in products:
        if node in rows or node in columns:
            product = products[node]
            found[product.weight] = int((node in columns) != product.is_turned)
            if node in columns and product.bias is not None:
                found[product.bias] = 0
    return found


def _product(node: Node, parameters: set[Node]) -> _Product | None:
    """A product of activations with a weight, of the forward pass: one that nothing of the backward pass goes into."""
    place = _PRODUCTS[node.target]
    source, weight = node.args[place : place + 2]
    is_turned = False
    while weight.target in _TURNS:
        weight, is_turned = weight.args[0], is_turned != _TURNS[weight.target]
    if weight not in parameters or is_backward(source):
        return None
    bias = node.args[0] if place else None
    return _Product(source, weight, is_turned, bias if bias in parameters else None)


def _sources(source: Node, products: dict[Node, _Product]) -> set[Node]:
    """The products that a value comes from; none where something is normalised between, or a parameter goes in."""
    found: set[Node] = set()
    seen, left = set(), [source]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in products:
            found.add(node)
        elif any(name in str(node.target) for name in _NORMS):
            return set()
        else:
            left += node.all_input_nodes
    return found
