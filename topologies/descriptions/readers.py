"""Readers of what machines say of themselves: the matrix of `nvidia-smi topo -m`, and two kinds of XML.

The matrix has levels and numbers of NVLinks, no bandwidth. XML is what NCCL writes to NCCL_TOPO_DUMP_FILE, and what
`lstopo --of xml` writes (hwloc 2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gapless.errors import InputError
from gapless.io.xml_tree import Element, parse_xml
from gapless.topologies.descriptions.wiring import LEVELS, Leaf, Wiring, check_devices, nearness_of

__all__ = ["is_matrix", "is_tree", "read_matrix", "read_tree"]

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


_NVLINK_BYTES_PER_S = {60: 20e9, 70: 25e9, 80: 25e9, 90: 25e9, 100: 50e9}
"""Of one NVLink, one direction, by the first compute capability that has it (P100, V100, A100, H100, B200)."""

_ENCODING = {2.5: 0.8, 5.0: 0.8}
"""Bits of data by transfer: PCIe 1 and 2 send 10 bits for a byte, later ones 130 for 16."""

_OSDEV_NETWORK, _OSDEV_OPENFABRICS = "2", "3"
_OSDEV_GPU = ("1", "5")

_MOST_MATRIX = 2**21
"""Characters of a matrix of bandwidths."""


@dataclass(frozen=True)
class _Gpu:
    """A GPU in a tree. `pcie_bytes_per_s`: the narrowest of its slot and the bridges above, None if nobody says."""

    name: str
    leaf: Leaf
    pcie_bytes_per_s: float | None


@dataclass(frozen=True)
class _Nic:
    name: str
    leaf: Leaf
    bytes_per_s: float | None


def is_tree(text: str) -> bool:
    """Whether a text is XML."""
    return text.lstrip().startswith("<")


def read_tree(text: str, where: str) -> Wiring:
    """The wiring that an XML description holds. Raises `InputError` where it is none, or has no GPU."""
    root = parse_xml(text, where)
    if root.tag == "system":
        return _of_nccl(root, where)
    if root.tag == "topology":
        return _of_hwloc(root, where)
    raise InputError(f"{where}: must be NCCL's dump (root `system`) or hwloc's XML (root `topology`), got {root.tag!r}")


# -- NCCL --------------------------------------------------------------------------------------------------------------


def _of_nccl(root: Element, where: str) -> Wiring:
    gpus, nics, elements = list[_Gpu](), list[_Nic](), list[Element]()
    for number, cpu in enumerate(root.iter("cpu")):
        for pci, bridges in _slots(cpu, "pci"):
            leaf = Leaf([id(one) for one in bridges], number, cpu.get("numaid", number))
            for gpu in pci.findall("gpu"):
                elements.append(gpu)
                speeds = [_pcie_bytes_per_s(one, where) for one in (pci, *bridges)]
                gpus.append(_Gpu(_bus_id(pci, where), leaf, min((one for one in speeds if one), default=None)))
            for net in pci.findall("nic/net"):
                speed = _number(net, "speed", where)
                nics.append(_Nic(net.get("name", f"net{len(nics)}"), leaf, None if speed is None else speed * 1e6 / 8))
    check_devices(where, len(gpus), len(nics))
    ranks = [_number(gpu, "dev", where) or 0 for gpu in elements]
    order = sorted(range(len(gpus)), key=lambda k: ranks[k])
    gpus, elements = [gpus[k] for k in order], [elements[k] for k in order]
    place = {gpu.name: k for k, gpu in enumerate(gpus)}
    nvlinks, switched = np.zeros((len(gpus), len(gpus)), dtype=np.int64), np.zeros(len(gpus), dtype=np.int64)
    for k, gpu in enumerate(elements):
        for link in (*gpu.findall("nvlink"), *gpu.findall("xgmi")):
            count, target = int(_number(link, "count", where) or 1), link.get("target", "").lower()
            if target in place:
                nvlinks[k, place[target]] += count
            else:  # a switch
                switched[k] += count
    ages = [_number(gpu, "sm", where) for gpu in elements if gpu.get("gcn") is None]  # AMD's links differ
    return _wiring(gpus, nics, nvlinks, switched, _nvlink_bytes_per_s([age for age in ages if age]), where)


def _bus_id(pci: Element, where: str) -> str:
    name = pci.get("busid")
    if name is None:
        raise InputError(f"{where}: pci: busid is missing")
    return name.lower()


def _pcie_bytes_per_s(pci: Element, where: str) -> float | None:
    """Of "16.0 GT/s PCIe" and a width, for one direction; None for what has no width, as switches in a machine have."""
    speed, width = (
        re.match(r"([0-9]{1,4}(?:\.[0-9]{1,4})?) GT/s", pci.get("link_speed", "")),
        _number(pci, "link_width", where),
    )
    if speed is None or not width:
        return None
    transfers = float(speed.group(1))
    return transfers * 1e9 * width / 8 * _ENCODING.get(transfers, 128 / 130)


def _nvlink_bytes_per_s(ages: list[float]) -> float | None:
    known = [rate for age, rate in _NVLINK_BYTES_PER_S.items() if ages and age <= min(ages)]
    return known[-1] if known else None


# -- hwloc -------------------------------------------------------------------------------------------------------------


def _of_hwloc(root: Element, where: str) -> Wiring:
    gpus, nics, places = list[_Gpu](), list[_Nic](), dict[str, int]()
    for numa, host in _hosts(root):
        for device, bridges in _slots(host, "object"):
            if device.get("type") != "PCIDev":
                continue
            inside = [one for one in device.iter("object") if one.get("type") == "OSDev"]
            leaf = Leaf([id(one) for one in bridges], id(host), numa)
            if any(one.get("osdev_type") in _OSDEV_GPU for one in inside):
                for one in inside:
                    places[one.get("gp_index", "")] = len(gpus)
                speeds = [_number(one, "pci_link_speed", where) for one in (device, *bridges)]
                slowest = min((speed for speed in speeds if speed), default=None)
                gpus.append(_Gpu(device.get("pci_busid", ""), leaf, None if slowest is None else slowest * 1e9))
            elif found := _network(inside):
                nics.append(_Nic(found, leaf, None))
    check_devices(where, len(gpus), len(nics))
    nvlinks, rate = _nvlink_matrix(root, places, len(gpus), where)
    return _wiring(gpus, nics, nvlinks, np.zeros(len(gpus), dtype=np.int64), rate, where)


def _hosts(root: Element) -> Iterator[tuple[int, Element]]:
    """Every host bridge, with the NUMA node that it is in: the nearest object above that holds one."""

    def walk(element: Element, numa: int) -> Iterator[tuple[int, Element]]:
        for child in element.findall("object"):
            if child.get("type") == "Bridge" and child.get("bridge_type", "").startswith("0"):
                yield numa, child
            else:
                has_own = any(one.get("type") == "NUMANode" for one in child.findall("object"))
                yield from walk(child, id(child) if has_own else numa)

    yield from walk(root, 0)


def _network(inside: list[Element]) -> str | None:
    """The name of a NIC, of InfiniBand's kind where it has one."""
    names = {kind: one.get("name") for one in reversed(inside) if (kind := one.get("osdev_type"))}
    return names.get(_OSDEV_OPENFABRICS) or names.get(_OSDEV_NETWORK)


def _nvlink_matrix(
    root: Element, places: dict[str, int], count: int, where: str
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], float | None]:
    """hwloc says bandwidths of pairs, in MB/s, not numbers of links: the least of them counts as one link."""
    nvlinks = np.zeros((count, count), dtype=np.int64)
    for table in root.iter("distances2hetero"):
        if table.get("name") != "NVLinkBandwidth":
            continue
        objects = [places.get(word.rpartition(":")[2]) for word in _words(table, "indexes", where)]
        words = _words(table, "u64values", where)
        if not all(re.fullmatch(r"[0-9]{1,20}", word, re.ASCII) for word in words):
            raise InputError(f"{where}: NVLinkBandwidth: values must be whole numbers of 64 bits")
        values = list(map(int, words))
        if len(values) != len(objects) ** 2:
            raise InputError(f"{where}: NVLinkBandwidth: must hold {len(objects) ** 2} values, got {len(values)}")
        matrix = np.array(values, dtype=np.float64).reshape(len(objects), -1)
        pairs = [
            (one, other, matrix[a, b])
            for a, one in enumerate(objects)
            for b, other in enumerate(objects)
            if one is not None and other is not None and one != other and matrix[a, b] > 0
        ]
        if pairs:
            least = min(value for _, _, value in pairs)
            for one, other, value in pairs:
                nvlinks[one, other] = round(value / least)
            return nvlinks, float(least) * 1e6
    return nvlinks, None


def _words(table: Element, tag: str, where: str) -> list[str]:
    texts = [part.text or "" for part in table.findall(tag)]
    if sum(map(len, texts)) > _MOST_MATRIX:
        raise InputError(f"{where}: NVLinkBandwidth: {tag} must have at most {_MOST_MATRIX} characters")
    return " ".join(texts).split()


# -- both --------------------------------------------------------------------------------------------------------------


def _slots(element: Element, tag: str) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """Everything below an element with a tag, with what of that tag it is in, nearest first."""

    def walk(inner: Element, above: tuple[Element, ...]) -> Iterator[tuple[Element, tuple[Element, ...]]]:
        for child in inner.findall(tag):
            yield child, above
            yield from walk(child, (child, *above))

    yield from walk(element, ())


def _number(element: Element, name: str, where: str) -> float | None:
    text = element.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise InputError(f"{where}: {element.tag}: {name} must be a number >= 0, got {text!r}")
    return value


def _wiring(
    gpus: list[_Gpu],
    nics: list[_Nic],
    nvlinks: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    switched: np.ndarray[tuple[int], np.dtype[np.int64]],
    nvlink_bytes_per_s: float | None,
    where: str,
) -> Wiring:
    between = [[-1 if one is other else nearness_of(one.leaf, other.leaf) for other in gpus] for one in gpus]
    to_nics = [[nearness_of(gpu.leaf, nic.leaf) for nic in nics] for gpu in gpus]
    slots = [gpu.pcie_bytes_per_s for gpu in gpus if gpu.pcie_bytes_per_s is not None]
    return Wiring(
        gpus=len(gpus),
        nvlinks=nvlinks,
        switched=switched,
        between_gpus=np.array(between, dtype=np.int64),
        to_nics=np.array(to_nics, dtype=np.int64).reshape(len(gpus), len(nics)),
        nic_names=tuple(nic.name for nic in nics),
        nvlink_bytes_per_s=nvlink_bytes_per_s,
        pcie_bytes_per_s=min(slots, default=None),
        nic_bytes_per_s=tuple(nic.bytes_per_s for nic in nics),
    )
