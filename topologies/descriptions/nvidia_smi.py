"""The matrix that `nvidia-smi topo -m` prints: levels and numbers of NVLinks, no bandwidth."""

from __future__ import annotations

import re

import numpy as np

from gapless.errors import InputError
from gapless.topologies.descriptions.wiring import LEVELS, Wiring, check_devices

__all__ = ["is_matrix", "read_matrix"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU\d+")
_NVLINK = re.compile(r"NV([0-9]{1,3})")
_FIRST = re.compile(r"^\s*GPU0\s+(?=GPU1|CPU|NIC|mlx|\S+_\d)", re.MULTILINE)

_MOST_CHARACTERS = 2**20
_MOST_NVLINKS = 18
"""No GPU has more; where the matrix adds up to more, all NVLinks end at switches, and each pair shows all of them."""


def is_matrix(text: str) -> bool:
    """Whether a text is such a matrix."""
    return _FIRST.search(_COLOURS.sub("", text)) is not None


def read_matrix(text: str, where: str) -> Wiring:
    """The wiring that a matrix describes. Raises `InputError` naming the row where it is none."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"{where}: must have at most {_MOST_CHARACTERS} characters, got {len(text)}")
    lines = [line.split() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line[0] == "GPU0")
    columns = lines[start]
    columns = columns[: columns.index("CPU")] if "CPU" in columns else columns
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    nics = [name for name in columns if name not in gpus]
    rows = {line[0]: line[1 : 1 + len(columns)] for line in lines[start + 1 :] if line[0] in columns}
    numa = {line[0]: line[2 + len(columns) : 3 + len(columns)] for line in lines[start + 1 :]}  # behind the CPUs
    count = len(gpus)
    check_devices(where, count, len(nics))
    nvlinks, between = np.zeros((count, count), dtype=np.int64), np.full((count, count), -1, dtype=np.int64)
    to_nics = np.zeros((count, len(nics)), dtype=np.int64)
    for number, gpu in enumerate(gpus):
        row = rows.get(gpu, [])
        if len(row) < len(columns):
            raise InputError(f"{where}: row {gpu}: must have {len(columns)} entries, got {len(row)}")
        for name, entry in zip(columns, row, strict=True):
            level, links = _entry(entry, f"{where}: row {gpu}, column {name}", is_itself=name == gpu)
            if links and numa[gpu] and numa[gpu] == numa.get(name):
                level = LEVELS.index("NODE")
            if name in gpus:
                nvlinks[number, gpus.index(name)], between[number, gpus.index(name)] = links, level
            else:
                to_nics[number, nics.index(name)] = level
    switched = np.zeros(count, dtype=np.int64)
    if nvlinks.sum(axis=1).max(initial=0) > _MOST_NVLINKS:
        switched, nvlinks = nvlinks.max(axis=1), np.zeros_like(nvlinks)
    return Wiring(count, nvlinks, switched, between, to_nics, tuple(nics), nic_bytes_per_s=(None,) * len(nics))


def _entry(entry: str, where: str, is_itself: bool) -> tuple[int, int]:
    """Level and NVLinks; of GPUs with NVLinks the entry doesn't say how far they are apart otherwise."""
    if is_itself and entry == "X":
        return -1, 0
    nvlink = _NVLINK.fullmatch(entry)
    if nvlink is not None:
        return LEVELS.index("SYS"), int(nvlink.group(1))
    if entry not in LEVELS:
        raise InputError(f"{where}: must be X, NV# or one of {', '.join(LEVELS)}, got {entry[:60]!r}")
    return LEVELS.index(entry), 0
