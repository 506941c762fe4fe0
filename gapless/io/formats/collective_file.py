"""Collective files: a collective of one's own, from what each rank holds before and after.

JSON, format `gapless.collective`, version 1, `//` comments allowed. Either by rank, as the buffers are laid out::

    {"format": "gapless.collective", "version": 1, "name": "swap", "ranks": 2,
     "inputs": [[0], [1]], "outputs": [[1], [0]]}

or by chunk, with buffers in the order of the chunks::

    {"format": "gapless.collective", "version": 1, "name": "swap", "ranks": 2,
     "chunks": [{"from": [0], "to": [1]}, {"from": [1], "to": [0]}]}

With `"reduces": true` a chunk may be in several inputs, and an output holds the sum of them all. Where chunks are of
unlike sizes, a plan's problem section has `chunk_sizes`, the bytes of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gapless.errors import InputError
from gapless.io.record import Record, load_record
from gapless.ir.collective import COLLECTIVES, ROOTED, Buffers, Collective, collective_by_name

__all__ = ["collective_data", "collective_of", "read_collective"]

FORMAT, VERSION = "gapless.collective", 1

_MOST_RANKS = 2**16
"""More than any plan here can serve; each has buffers of its own."""


def read_collective(path: str | Path) -> Collective:
    """A collective from a file. Raises `InputError` naming file and field."""
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    collective = _read_custom(record, record.text("name"))
    record.close()
    return collective


def collective_data(collective: Collective) -> dict[str, object]:
    """What `collective_of` needs, for the problem section of a plan; of a custom one, all buffers."""
    data: dict[str, object] = {
        "collective": collective.name, "ranks": collective.rank_count, "chunks_per_rank": collective.chunks_per_rank,
    }  # fmt: skip
    if collective.name not in COLLECTIVES:
        buffers = {title: [list(buffer) for buffer in getattr(collective, title)] for title in ("inputs", "outputs")}
        sizes = {} if collective.chunk_sizes is None else {"chunk_sizes": list(collective.chunk_sizes)}
        return {**data, "reduces": collective.reduces, **buffers, **sizes}
    if collective.name in ROOTED:
        filled = [[r for r, buffer in enumerate(side) if buffer] for side in (collective.inputs, collective.outputs)]
        # What starts on one rank has its root there; what ends on one rank, and doesn't start on one, has it there.
        data["root"] = filled[0][0] if len(filled[0]) == 1 else filled[1][0]
        if collective.name == "sendrecv":
            data["target"] = filled[1][0]
    return data


def collective_of(description: Mapping[str, object], where: str) -> Collective:
    """The collective of a plan's problem section. Raises `InputError` naming `where` and the field."""
    record = Record(dict(description), f"{where}: problem")
    name = record.text("collective")
    if "inputs" in record:
        return _read_custom(record, name)
    root, target = record.integer("root", 0, default=None), record.integer("target", 0, default=None)
    ranks, parts = record.integer("ranks", 2, _MOST_RANKS), record.integer("chunks_per_rank", 1)
    return collective_by_name(name, ranks, parts, root, target)


def _read_custom(record: Record, name: str) -> Collective:
    if name in COLLECTIVES or not name:
        raise record.fail("name", f"a name of its own, not empty and not one of {', '.join(sorted(COLLECTIVES))}", name)
    ranks, reduces = record.integer("ranks", 2, _MOST_RANKS), record.boolean("reduces", default=False)
    parts = record.integer("chunks_per_rank", 1, default=1)
    if "chunks" in record:
        for title in ("inputs", "outputs"):
            if title in record:
                raise record.fail(title, "absent where chunks is given", record.raw(title))
        inputs, outputs = _by_chunk(record, ranks)
    else:
        places = sum(len(chunks) for chunks in record.array("inputs") if isinstance(chunks, list))
        inputs, outputs = (_by_rank(record, title, ranks, places - 1) for title in ("inputs", "outputs"))
    if not any(inputs):
        raise record.fail("chunks" if "chunks" in record else "inputs", "at least one chunk", [])
    sizes = tuple(record.integers("chunk_sizes", 1)) if "chunk_sizes" in record else None
    try:
        return Collective(name, ranks, parts, inputs, outputs, reduces, sizes)
    except InputError as error:  # it names the collective, not the file
        raise InputError(f"{record.where}: {error}") from None


def _by_rank(record: Record, title: str, ranks: int, last_chunk: int) -> Buffers:
    """The buffers; chunks are numbered from 0, so none can be above the number of places in the inputs less one."""
    lists = record.lists(title, f"a list of chunks for each of the {ranks} ranks", ranks)
    return tuple(
        tuple(record.whole(f"{title}[{rank}][{k}]", chunk, 0, max(last_chunk, 0)) for k, chunk in enumerate(chunks))
        for rank, chunks in enumerate(lists)
    )


def _by_chunk(record: Record, ranks: int) -> tuple[Buffers, Buffers]:
    sides: tuple[list[list[int]], list[list[int]]] = ([[] for _ in range(ranks)], [[] for _ in range(ranks)])
    for chunk, entry in enumerate(record.records("chunks")):
        for title, side in (("from", sides[0]), ("to", sides[1])):
            for rank in entry.integers(title, 0, ranks - 1):
                side[rank].append(chunk)
        entry.close()
    return tuple(map(tuple, sides[0])), tuple(map(tuple, sides[1]))
