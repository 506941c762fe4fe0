"""Sketch: what a person leaves to the synthesiser (TACCL, section 5.4.1 and appendix B.1), and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

from gapless.errors import InputError
from gapless.io.record import Record, is_number, load_record, parse_record, suggestion
from gapless.units import parse_bytes

__all__ = ["InterNode", "Policy", "Sketch", "load_sketch", "read_sketch", "sketch_data", "sketch_names"]

Policy = Literal["uc-min", "uc-max", "freedom", "by-size"]
"""Few connections, many, as many as the plan likes; `by-size`: few for chunks of more than 1 MB, else many."""
POLICIES: tuple[Policy, ...] = ("uc-min", "uc-max", "freedom", "by-size")


@dataclass(frozen=True)
class InterNode:
    """How data leave a node. Ranks are local: 0 .. ranks_per_node - 1.

    `connections`: sender -> receivers on every other node, or one of the two words. `beta_split[s]` = n: sender s has
    1/n of its NIC; without it a NIC is shared evenly by its connections. `relays[o]`: the senders that chunks which
    start on rank o may leave by; `relay_rule` (r1, r2) says the same as o // r1 * r1 + r2. With `enforce_ordering` a
    sender's own chunks leave before those that it relays.
    """

    connections: dict[int, tuple[int, ...]] | Literal["fully-connected", "direct-map"]
    beta_split: dict[int, float] | None = None
    relays: dict[int, tuple[int, ...]] | None = None
    relay_rule: tuple[int, int] | None = None
    enforce_ordering: bool = False

    def receivers(self, ranks_per_node: int) -> dict[int, tuple[int, ...]]:
        """The connections spelled out, senders ascending."""
        everyone = range(ranks_per_node)
        if self.connections == "fully-connected":
            return {sender: tuple(everyone) for sender in everyone}
        if self.connections == "direct-map":
            return {sender: (sender,) for sender in everyone}
        return {sender: self.connections[sender] for sender in sorted(self.connections)}

    def senders_of(self, origin: int) -> tuple[int, ...] | None:
        """The local senders that chunks of local rank `origin` may leave by, None for any."""
        if self.relay_rule is not None:
            size, offset = self.relay_rule
            return (origin // size * size + offset,)
        return None if self.relays is None else self.relays.get(origin, ())


@dataclass(frozen=True)
class Sketch:
    """A communication sketch.

    `switches[k]` are the local ranks of a switch-hyperedge, `policies[k]` its policy. `symmetry` holds (offset, group)
    pairs: rank r goes to (r + offset) mod group within its group; group 0 stands for all ranks. `permutations` are
    more symmetries, each as the images of all ranks of the cluster. `partition`: parts of those ranks, each of which
    every symmetry maps to a part; sends between parts are free then (Example 5.4.3). `input_bytes` is the default size
    of one rank's input buffer. `node_count` is the number of nodes that the sketch is for, None for any.
    """

    name: str
    switches: tuple[tuple[int, ...], ...] = ()
    policies: tuple[Policy, ...] = ()
    inter_node: InterNode | None = None
    symmetry: tuple[tuple[int, int], ...] = ()
    permutations: tuple[tuple[int, ...], ...] = ()
    partition: tuple[tuple[int, ...], ...] = ()
    chunks_per_rank: int = 1
    input_bytes: int | None = None
    node_count: int | None = None


def sketch_data(sketch: Sketch) -> dict[str, object]:
    """The sketch as the object that `read_sketch` reads back from a JSON file."""
    data: dict[str, object] = {"intranode_sketch": {"strategy": "none"}}
    if sketch.switches:
        switches, policies = [list(ranks) for ranks in sketch.switches], list(sketch.policies)
        data["intranode_sketch"] = {
            "strategy": "switch", "switches": switches, "switch_hyperedge_strategy": policies,
        }  # fmt: skip
    if sketch.inter_node is not None:
        data["internode_sketch"] = _inter_node_data(sketch.inter_node)
    if sketch.symmetry:
        data["symmetry_offsets"] = [[offset, group or "all"] for offset, group in sketch.symmetry]
    if sketch.permutations:
        data["symmetry_permutations"] = [list(images) for images in sketch.permutations]
    if sketch.partition:
        data["symmetry_partition"] = [list(ranks) for ranks in sketch.partition]
    if sketch.node_count is not None:
        data["nnodes"] = sketch.node_count
    size = {} if sketch.input_bytes is None else {"input_size": f"{sketch.input_bytes}B"}
    data["hyperparameters"] = {"input_chunkup": sketch.chunks_per_rank, **size}
    return data


def _inter_node_data(inter_node: InterNode) -> dict[str, object]:
    ends = inter_node.connections
    connections = ends if isinstance(ends, str) else _by_name(ends)
    data: dict[str, object] = {"strategy": "relay", "internode_conn": connections}
    if inter_node.beta_split is not None:
        data["beta_split"] = {str(sender): split for sender, split in inter_node.beta_split.items()}
    if inter_node.relays is not None:
        data["gpus_to_sender_rev_map"] = _by_name(_inverse(inter_node.relays))
    if inter_node.relay_rule is not None:
        data["chunk_to_relay_map"] = list(inter_node.relay_rule)
    if inter_node.enforce_ordering:
        data["enforce_ordering"] = True
    return data


def _by_name(lists: dict[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(rank): list(others) for rank, others in lists.items()}


def sketch_names() -> list[str]:
    """The sketches that gapless ships, by name."""
    folder = files("gapless.encodings.taccl.sketch.shipped")
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_sketch(name: str) -> Sketch:
    """A sketch that gapless ships, changed by what follows colons: `dgx2-sk-1:uc-max:connections=4:chunks=1`.

    A policy is that of all its switches; so many `connections` has each sender, to its own receivers and those that
    follow; into so many `chunks` a rank's own data are cut. Raises `InputError` for what it doesn't know.
    """
    head, *options = name.split(":")
    names = sketch_names()
    if head not in names:
        hint = suggestion(head, names) or "--sketch-file takes a file"
        raise InputError(f"sketch: must be one of {', '.join(names)}, got {head!r}; {hint}")
    text = (files("gapless.encodings.taccl.sketch.shipped") / f"{head}.json").read_text(encoding="utf-8")
    sketch = _read(parse_record(text, f"{head}.json"), name)
    for option in options:
        sketch = _changed(sketch, option)
    return sketch


def _changed(sketch: Sketch, option: str) -> Sketch:
    """The sketch with one option of its name."""
    for policy in POLICIES:
        if option == policy:
            return replace(sketch, policies=(policy,) * len(sketch.switches))
    title, _, number = option.partition("=")
    if title not in ("connections", "chunks") or not (number.isdecimal() and int(number) > 0):
        known = f"{', '.join(POLICIES)}, connections=N or chunks=N"
        raise InputError(f"sketch {sketch.name!r}: options must be {known} with N >= 1, got {option!r}")
    if title == "chunks":
        return replace(sketch, chunks_per_rank=int(number))
    return replace(sketch, inter_node=_connected(sketch, int(number)))


def _connected(sketch: Sketch, count: int) -> InterNode:
    """Each sender joined to so many receivers, its own first; they share the NIC evenly, and latencies overlap."""
    ends = None if sketch.inter_node is None else sketch.inter_node.connections
    if sketch.inter_node is None or not isinstance(ends, dict):
        raise InputError(f"sketch {sketch.name!r}: connections: must be of a sketch that lists senders with receivers")
    receivers = sorted({rank for ranks in ends.values() for rank in ranks})
    if count > len(receivers):
        raise InputError(f"sketch {sketch.name!r}: connections: must be in 1..{len(receivers)}, got {count}")
    starts = {sender: receivers.index(ranks[0]) for sender, ranks in ends.items()}
    around = {
        sender: tuple(sorted(receivers[(start + step) % len(receivers)] for step in range(count)))
        for sender, start in starts.items()
    }
    return replace(sketch.inter_node, connections=around, beta_split=None)


def read_sketch(path: str | Path) -> Sketch:
    """A sketch from a file in TACCL's format, `//` comments allowed. Raises `InputError` naming the field."""
    return _read(load_record(path), Path(path).stem)


def _read(record: Record, name: str) -> Sketch:
    switches, policies = _read_intra_node(record.record("intranode_sketch"))
    inter_node = record.record("internode_sketch", default=None)
    hyper = record.record("hyperparameters", default=None) or Record({}, f"{record.where}: hyperparameters")
    size = hyper.text("input_size", default=None)
    sketch = Sketch(
        name=name,
        switches=switches,
        policies=policies,
        inter_node=None if inter_node is None else _read_inter_node(inter_node),
        symmetry=_read_symmetry(record),
        permutations=_lists(record, "symmetry_permutations", default=[]),
        partition=_lists(record, "symmetry_partition", default=[]),
        chunks_per_rank=hyper.integer("input_chunkup", 1, default=1),
        input_bytes=None if size is None else parse_bytes(size, f"{hyper.where}: input_size"),
        node_count=record.integer("nnodes", 1, default=None),
    )
    hyper.close()
    record.close()
    return sketch


def _read_intra_node(record: Record) -> tuple[tuple[tuple[int, ...], ...], tuple[Policy, ...]]:
    strategy = record.text("strategy", choices=["none", "switch"])
    if strategy == "none":
        record.close()
        return (), ()
    switches = _lists(record, "switches")
    policies = tuple(_read_policy(record, name) for name in record.array("switch_hyperedge_strategy"))
    if len(policies) != len(switches):
        raise record.fail("switch_hyperedge_strategy", f"{len(switches)} policies, one per switch", policies)
    record.close()
    return switches, policies


def _read_policy(record: Record, name: object) -> Policy:
    for policy in POLICIES:
        if name == policy:
            return policy
    raise record.fail("switch_hyperedge_strategy", f"a list of {', '.join(POLICIES)}", name)


def _read_inter_node(record: Record) -> InterNode:
    record.text("strategy", choices=["relay"])
    connections = record.raw("internode_conn")
    if isinstance(connections, dict):
        connections = _rank_lists(record, "internode_conn", connections)
    elif connections not in ("fully-connected", "direct-map"):
        form = 'an object {"sender": [receivers]}, "fully-connected" or "direct-map"'
        raise record.fail("internode_conn", form, connections)
    rule = record.integers("chunk_to_relay_map", 0, default=None)
    if rule is not None and (len(rule) != 2 or rule[0] < 1):
        raise record.fail("chunk_to_relay_map", "[r1, r2] with r1 >= 1: relay = rank // r1 * r1 + r2", list(rule))
    served = record.raw("gpus_to_sender_rev_map", default=None)
    if served is not None and rule is not None:
        raise record.fail("gpus_to_sender_rev_map", "absent where chunk_to_relay_map is given", served)
    inter_node = InterNode(
        connections=connections,
        beta_split=_read_beta_split(record),
        relays=None
        if served is None
        else _inverse(dict(sorted(_rank_lists(record, "gpus_to_sender_rev_map", served).items()))),
        relay_rule=rule,
        enforce_ordering=record.boolean("enforce_ordering", default=False),
    )
    record.close()
    if inter_node.enforce_ordering and served is None and rule is None:
        raise record.fail("enforce_ordering", "false without a relay map: there is nothing to put in order", True)
    return inter_node


def _read_beta_split(record: Record) -> dict[int, float] | None:
    split = record.record("beta_split", default=None)
    if split is None:
        return None
    return {_rank_key(record, "beta_split", key): split.number(key, minimum=1) for key in split.names()}


def _read_symmetry(record: Record) -> tuple[tuple[int, int], ...]:
    pairs = []
    for k, entry in enumerate(record.array("symmetry_offsets", default=[])):
        title = f"symmetry_offsets[{k}]"
        if not isinstance(entry, list) or len(entry) != 2:
            raise record.fail(title, "a pair [offset, group size]", entry)
        group = 0 if entry[1] == "all" else record.whole(f"{title}[1]", entry[1], 2)
        offset = record.whole(f"{title}[0]", entry[0], 1)
        if group and offset >= group:
            raise record.fail(title, "a pair with offset < group size", entry)
        pairs.append((offset, group))
    return tuple(pairs)


def _lists(record: Record, key: str, **default: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Lists of ranks; `symmetry_permutations` and `symmetry_partition` are our additions to the format."""
    return tuple(_ranks(record, f"{key}[{k}]", entry) for k, entry in enumerate(record.array(key, **default)))


def _rank_lists(record: Record, key: str, value: object) -> dict[int, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise record.fail(key, 'an object {"rank": [ranks]}', value)
    return {
        _rank_key(record, key, name): _ranks(record, f"{key}[{name!r}]", ranks, is_numbered=False)
        for name, ranks in value.items()
    }


def _ranks(record: Record, title: str, value: object, is_numbered: bool = True) -> tuple[int, ...]:
    """Ranks, each once; `is_numbered`: messages say which of them is wrong."""
    if not isinstance(value, list) or not value:
        raise record.fail(title, "a list of ranks, not empty", value)
    if len({str(rank) for rank in value}) != len(value):
        raise record.fail(title, "a list of different ranks", value)
    return tuple(
        record.whole(f"{title}[{n}]" if is_numbered else title, rank, 0) for n, rank in enumerate(value)
    )  # fmt: skip


def _rank_key(record: Record, key: str, name: str) -> int:
    if not is_number(name):
        raise record.fail(key, "an object whose keys are ranks", name)
    return int(name)


def _inverse(lists: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Sender -> origins turned into origin -> senders, or the other way round; ascending."""
    found: dict[int, list[int]] = {}
    for rank, others in lists.items():
        for other in others:
            found.setdefault(other, []).append(rank)
    return {rank: tuple(others) for rank, others in sorted(found.items())}
