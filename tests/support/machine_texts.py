"""What machines say of themselves, made by hand: nvidia-smi's matrix, NCCL's dump, hwloc's XML, nccl-tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["hwloc_text", "matrix_text", "nccl_text", "table_text"]


def matrix_text(rows: Sequence[str], nics: int = 0) -> str:
    """The matrix of `nvidia-smi topo -m`; a row's entries are between blanks, those of NICs last."""
    columns = [f"GPU{k}" for k in range(len(rows))] + [f"NIC{k}" for k in range(nics)]
    head = "\t".join(["\x1b[4m", *columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID\x1b[0m"])
    lines = [head]
    for number, row in enumerate(rows):
        lines.append("\t".join([f"GPU{number}", *(f" {entry} " for entry in row.split()), "0-31", "0", "N/A"]))
    lines += ["\t".join([f"NIC{k}", *["SYS"] * len(columns)]) for k in range(nics)]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  NV#  = NVLinks", "NIC Legend:", "  NIC0: mlx5_0"])


def nccl_text(gpus: int, nvlinks: Sequence[tuple[int, str, int]], nics: int, sm: int = 80, speed: int = 200_000) -> str:
    """NCCL's dump: two GPUs and perhaps a NIC below each PCIe switch, half of the switches at each CPU.

    `nvlinks`: (GPU, bus id of the target, number of links); the bus id of GPU g is `0000:g0:00.0`.
    """
    cpus: list[list[str]] = [[], []]
    for first in range(0, gpus, 2):
        inside = []
        for gpu in range(first, min(first + 2, gpus)):
            links = "".join(
                f'<nvlink target="{target}" count="{n}" tclass="0x068000"/>' for g, target, n in nvlinks if g == gpu
            )
            inside.append(_pci(f"0000:{gpu}0:00.0", f'<gpu dev="{gpu}" sm="{sm}" rank="{gpu}" gdr="1">{links}</gpu>'))
        if first // 2 < nics:
            net = f'<nic><net name="mlx5_{first // 2}" dev="{first // 2}" speed="{speed}" port="1" gdr="1"/></nic>'
            inside.append(_pci(f"0000:a{first}:00.0", net))
        cpus[first * 2 >= gpus].append(_pci(f"0000:b{first}:00.0", "".join(inside)))
    nodes = "".join(f'<cpu numaid="{k}" arch="x86_64">{"".join(inside)}</cpu>' for k, inside in enumerate(cpus))
    return f'<system version="1">{nodes}</system>'


def _pci(bus: str, inside: str) -> str:
    return f'<pci busid="{bus}" class="0x0" link_speed="16.0 GT/s PCIe" link_width="16">{inside}</pci>'


def hwloc_text(gpus: int, bandwidth: Callable[[int, int], int] | None = None) -> str:
    """`lstopo --of xml`: one GPU a NUMA node, a NIC at the same host bridge. `bandwidth(i, j)`: MB/s of NVLinks."""
    nodes = []
    for gpu in range(gpus):
        device = (
            f'<object type="PCIDev" pci_busid="0000:{gpu}1:00.0" pci_link_speed="31.5">'
            f'<object type="OSDev" gp_index="{100 + gpu}" name="cuda{gpu}" subtype="CUDA" osdev_type="5"/></object>'
        )
        nic = (
            f'<object type="PCIDev" pci_busid="0000:{gpu}2:00.0" pci_link_speed="15.8">'
            f'<object type="OSDev" name="ib{gpu}" osdev_type="2"/>'
            f'<object type="OSDev" name="mlx5_{gpu}" osdev_type="3"/></object>'
        )
        bridge = f'<object type="Bridge" bridge_type="1-1" pci_link_speed="31.5">{device}</object>'
        host = f'<object type="Bridge" bridge_type="0-1">{bridge}{nic}</object>'
        nodes.append(f'<object type="Package"><object type="NUMANode"/>{host}</object>')
    table = ""
    if bandwidth is not None:
        indexes = " ".join(f"OSDev:{100 + gpu}" for gpu in range(gpus))
        values = " ".join(str(0 if i == j else bandwidth(i, j)) for i in range(gpus) for j in range(gpus))
        table = (
            f'<distances2hetero nbobjs="{gpus}" kind="0" name="NVLinkBandwidth" indexing="gp">'
            f'<indexes length="1">{indexes} </indexes><u64values length="1">{values} </u64values></distances2hetero>'
        )
    head = '<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd">'
    return f'{head}<topology version="2.0"><object type="Machine">{"".join(nodes)}</object>{table}</topology>'


def table_text(times_us: Sequence[tuple[int, float]]) -> str:
    """What sendrecv_perf prints for (bytes, microseconds)."""
    rows = "\n".join(
        f"{size:>12} {size // 4:>12}   float    none      -1 {time:>8.2f}  1.00  1.00  0 {time:>8.2f}  1.00  1.00  0"
        for size, time in times_us
    )
    return f"""# nThread 1 nGpus 2 minBytes 8 maxBytes 268435456 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.0
"""
