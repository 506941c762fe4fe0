"""Whether the trainers of a run file always read rows that hold all updates: from docs/formats.md alone, row by row.

For the designs that keep a row on all trainers or on one (`replicated`, `lrpp`, `lrpp-delayed`). Times don't
matter here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Batch = dict[str, Any]


def batches_of(path: Path) -> tuple[dict[str, Any], list[Batch]]:
    """`meta`, and of each batch its columns, with `ids` and with what the end of the run evicts."""
    with np.load(path) as archive:
        arrays = dict(archive)
    meta, end = (json.loads(arrays[name].tobytes()) for name in ("meta", "end"))
    found: list[Batch] = []
    while f"{len(found):08d}/rows" in arrays:
        found += _of_window(arrays, f"{len(found):08d}", meta["cluster"]["trainers"])
    bits = np.unpackbits(arrays["written_back"])
    for batch in found[end["written_back_from"] :]:
        rows = len(batch["ids"])
        batch["evicted"], bits = batch["evicted"] | bits[:rows], bits[rows:]
    return meta, found


def _of_window(arrays: dict[str, np.ndarray], folder: str, trainers: int) -> Iterator[Batch]:
    row = example = 0
    for k, (rows, examples) in enumerate(zip(arrays[f"{folder}/rows"], arrays[f"{folder}/examples"], strict=True)):
        names = ("fetched_by", "private_to", "sync", "evicted")
        batch: Batch = {name: arrays[f"{folder}/{name}"][row : row + rows].astype(int) for name in names}
        batch["ids"] = np.cumsum(arrays[f"{folder}/id_steps"][row : row + rows])
        batch["users"] = np.unpackbits(arrays[f"{folder}/users"][row : row + rows], axis=1)[:, :trainers]
        batch["trainer"] = arrays[f"{folder}/trainer"][example : example + examples]
        batch["prefetch_after"] = int(arrays[f"{folder}/prefetch_after"][k])
        row, example = row + rows, example + examples
        yield batch


def complaints(path: Path, trace_ids: np.ndarray) -> list[str]:
    """What is wrong with a run; `trace_ids`: of the trace, tables in columns."""
    meta, batches = batches_of(path)
    trainers, found, first = meta["cluster"]["trainers"], list[str](), 0
    held: dict[int, set[int]] = {}  # who has the current value, while the row is cached
    written: dict[int, int] = {}  # the batch after which a row was written back
    background: set[int] = set()
    for number, batch in enumerate(batches):
        part = trace_ids[first : first + len(batch["trainer"])]
        part = part + (np.arange(part.shape[1]) << 44)
        first += len(part)
        if (np.bincount(batch["trainer"], minlength=trainers) > meta["share"]).any():
            found.append(f"batch {number}: a trainer has more examples than its share")
        if set(batch["ids"].tolist()) != set(part.ravel().tolist()):
            found.append(f"batch {number}: other rows than the trace's")
        uses = {
            (id_, trainer) for ids, trainer in zip(part.tolist(), batch["trainer"].tolist(), strict=True) for id_ in ids
        }
        for k, id_ in enumerate(batch["ids"].tolist()):
            users = {trainer for trainer in range(trainers) if (id_, trainer) in uses}
            row = {name: int(batch[name][k]) for name in ("fetched_by", "private_to", "sync", "evicted")}
            where = f"batch {number}, row {id_}"
            if users != set(np.flatnonzero(batch["users"][k]).tolist()):
                found.append(f"{where}: users aren't those of the trace")
            found += [f"{where}: {what}" for what in _of_row(row, users, id_, held, written, batch, trainers)]
            if id_ in background:
                found.append(f"{where}: is still being synchronised in the background")
            if row["evicted"]:
                written[id_] = number
                held.pop(id_, None)
        background = {id_ for id_, sync in zip(batch["ids"].tolist(), batch["sync"].tolist(), strict=True) if sync == 2}
    return found + [f"row {id_}: is never written back" for id_ in held]


def _of_row(
    row: dict[str, int], users: set[int], id_: int, held: dict[int, set[int]], written: dict[int, int], batch: Batch,
    trainers: int,
) -> Iterator[str]:  # fmt: skip
    everyone, keeper = set(range(trainers)), row["private_to"]
    if row["fetched_by"] != -2:
        if id_ in held:
            yield "is fetched though it is cached"
        if written.get(id_, -1) > batch["prefetch_after"]:
            yield "is fetched before it may be written back"
        held[id_] = everyone if row["fetched_by"] == -1 else {row["fetched_by"]}
    if not users <= held.get(id_, set()):
        yield "is read where it is missing or stale"
    if keeper != -1 and users != {keeper}:
        yield "is kept by one trainer and used by others"
    if keeper == -1 and not row["sync"] and users:
        held[id_] = set()  # everyone's update stays with him
    else:
        held[id_] = {keeper} if keeper != -1 else everyone
