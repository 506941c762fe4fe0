"""Patterns in joint graphs: what rewrites find and leave behind, and the walks through views that they share.

Needs the extra `torch`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from gapless.torch.library import Argument, Made, Node, torch

__all__ = [
    "Alternative",
    "Lean",
    "Rewrites",
    "Unlike",
    "base",
    "erase",
    "is_reshape",
    "led_to",
    "maker",
    "matches",
    "one",
    "only",
    "part",
    "put",
    "readers",
    "require",
    "same",
    "value_of",
]

aten = torch.ops.aten
_SAME_MEMORY = frozenset({aten._unsafe_view.default})  # noqa: SLF001
"""Views that PyTorch doesn't call so."""
_RESHAPES = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.unsqueeze.default, aten.squeeze.dim,  # noqa: SLF001
    aten.detach.default, aten.alias.default,
})  # fmt: skip


Pattern = TypeVar("Pattern")


class Unlike(Exception):  # noqa: N818
    """What was looked at is not the pattern that was looked for."""


@dataclass(frozen=True)
class Alternative:
    """Another implementation of what a graph node computes.

    `random`: the graph node whose random state it runs under. `close`: of which kind, where it is only close to eager.
    """

    name: str
    function: Callable[..., Made]
    arguments: tuple[Argument, ...]
    random: Node | None = None
    close: str = ""


@dataclass(frozen=True)
class Lean:
    """How a graph node of the forward pass runs where nobody wants the intermediates that only alternatives read.

    `function`: takes the same arguments and returns all but its last values, for which the nodes `extra` stand.
    """

    function: Callable[..., Made]
    extra: tuple[Node, ...]


@dataclass
class Rewrites:
    """What was changed and what there is to choose.

    `alternatives`: of each graph node that has some. `beside`: a graph node that makes an intermediate from another's
    output, only for an alternative to read, and that other node. `lean`: of graph nodes that needn't make all that they
    return. `draws`: a graph node of the backward pass, and the node under whose random state it runs. `close`: the
    kind of a graph node that is only close to eager's. `replaced`: graph nodes, by those that they stand for.
    """

    alternatives: dict[Node, list[Alternative]] = field(default_factory=dict)
    beside: dict[Node, Node] = field(default_factory=dict)
    lean: dict[Node, Lean] = field(default_factory=dict)
    draws: dict[Node, Node] = field(default_factory=dict)
    close: dict[Node, str] = field(default_factory=dict)
    replaced: dict[Node, Node] = field(default_factory=dict)

    def offer(self, node: Node, *alternatives: Alternative) -> None:
        """Add alternatives to those that a graph node has."""
        self.alternatives.setdefault(node, []).extend(alternatives)

    def stand_in(self, node: Node, other: Node) -> None:
        """Let one graph node take the place of another."""
        other.meta.setdefault("val", node.meta.get("val"))
        node.replace_all_uses_with(other)
        self.replaced[node] = other


def matches(graph: torch.fx.Graph, targets: Iterable[object], find: Callable[[Node], Pattern]) -> Iterator[Pattern]:
    """What `find` makes of each node with one of these targets, but where it raises `Unlike`; one after the other, so
    that each may be replaced before the next is looked for."""
    for node in list(graph.nodes):
        if node.target in targets:
            try:
                pattern = find(node)
            except Unlike:
                continue
            yield pattern


def is_view(node: Node) -> bool:
    """Whether a graph node only looks at memory that another has made."""
    return bool(getattr(node.target, "is_view", False)) or node.target in _SAME_MEMORY


def maker(node: Node) -> Node:
    """The node that computes what a node stands for or looks at."""
    while node.op == "call_function" and (node.target is operator.getitem or is_view(node)):
        node = node.args[0]
    return node


def readers(node: Node) -> list[Node]:
    """The nodes that read a tensor, through views too."""
    nodes: list[Node] = []
    for user in node.users:
        nodes += readers(user) if is_view(user) else [user]
    return nodes


def part(node: Node, place: int) -> Node | None:
    """The graph node that stands for one of the values that a node returns; None where nobody reads it."""
    return next((user for user in node.users if user.target is operator.getitem and user.args[1] == place), None)


def value_of(graph: torch.fx.Graph, node: Node, place: int) -> Node:
    """A graph node for one more of the values that a node returns."""
    with graph.inserting_after(node):
        return graph.call_function(operator.getitem, (node, place))


def require(is_so: bool) -> None:
    """Raise `Unlike` unless it is so."""
    if not is_so:
        raise Unlike


def one(nodes: list[Node], or_none: bool = False) -> Node:
    """The only node of a list; None of an empty one where that may be."""
    require(len(nodes) == 1 or (or_none and not nodes))
    return nodes[0] if nodes else None


def is_reshape(node: Node) -> bool:
    """Whether a node shows all elements of another, in their order."""
    if node.target not in _RESHAPES:
        return False
    return bool(node.meta["val"].numel() == node.args[0].meta["val"].numel())


def _is_turn(node: Node) -> bool:
    """Whether the last two dimensions of another have changed places in a node."""
    if node.target is aten.t.default:
        return True
    if node.target is not aten.transpose.int:
        return False
    count = node.meta["val"].dim()
    return {place % count for place in node.args[1:]} == {count - 2, count - 1}


def only(node: Node) -> Node:
    """What a node shows in another shape, if nobody else looks at it."""
    while is_reshape(node):
        require(len(node.users) == 1)
        node = node.args[0]
    require(len(node.users) == 1)
    return node


def base(node: Node) -> Node:
    """What a node looks at, through views."""
    while is_view(node):
        node = node.args[0]
    return node


def same(node: Node, other: Node, turns: int = 0) -> bool:
    """Whether a node is another in some shape, with the last two dimensions changing places so often."""
    while node is not other and (is_reshape(node) or _is_turn(node)):
        turns -= _is_turn(node)
        node = node.args[0]
    return node is other and not turns


def put(
    graph: torch.fx.Graph, before: Node, function: Callable[..., Made], arguments: tuple[Argument, ...], count: int
) -> list[Node]:
    """A call with its `count` values put before a graph node, paired with the backward pass as that node is."""
    with graph.inserting_before(before):
        call = graph.call_function(function, arguments)
        values = [graph.call_function(operator.getitem, (call, place)) for place in range(count)]
    for node in (call, *values):
        node.meta["seq_nr"] = before.meta.get("seq_nr")
    return [call, *values]


def led_to(nodes: Iterable[Node], known: Iterable[Node]) -> set[Node]:
    """Those that are known, and all that some nodes lead to without them."""
    reached, ahead = set(known), list(nodes)
    while ahead:
        for user in ahead.pop().users:
            if user not in reached and user.op == "call_function":
                reached.add(user)
                ahead.append(user)
    return reached


def erase(graph: torch.fx.Graph, nodes: Iterable[Node]) -> None:
    """Take out those of some nodes that nobody reads any more; views of what stays may be left without a reader."""
    wanted = set(nodes)
    for node in reversed(list(graph.nodes)):
        if node in wanted and not node.users:
            graph.erase_node(node)
