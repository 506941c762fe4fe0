"""Nodes from what machines say: links, switches, what PCIe shares, the NICs that GPUs use, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from calls import run
from machine_texts import hwloc_text, matrix_text, nccl_text, table_text

from gapless.cli.main import main
from gapless.errors import InputError
from gapless.topologies.descriptions import Measured, Rates, describe, read_measured
from gapless.topologies.files import read_node
from gapless.topologies.node import LocalLink, NicTemplate, NodeTemplate

NVLINK = Rates(nvlink_bytes_per_s=25e9, pcie_bytes_per_s=32e9, nic_bytes_per_s=25e9)
SWITCHED = [" ".join("X" if i == j else "NV12" for j in range(8)) + " PXB SYS" for i in range(8)]
BRIDGED = ["X PIX SYS SYS PIX SYS", "PIX X SYS SYS PIX SYS", "SYS SYS X PHB SYS NODE", "SYS SYS PHB X SYS NODE"]
"""Four GPUs, of which two share a PCIe switch, and two NICs."""


def widths(node: NodeTemplate) -> dict[tuple[int, int], int]:
    """NVLinks by pair, from the inverse bandwidth of 25 GB/s links."""
    return {(link.source, link.target): round(1 / (link.beta_s_per_byte * 25e9)) for link in node.links}


def test_more_nvlinks_than_a_gpu_has_end_at_switches() -> None:
    node = describe(matrix_text(SWITCHED, 2), "a100", NVLINK)
    assert not node.links
    (switch,) = node.switches
    assert switch.ranks == tuple(range(8))
    assert switch.beta_s_per_byte == pytest.approx(1 / 300e9)
    assert [nic.ranks for nic in node.nics] == [tuple(range(8))]  # all are nearer to the first


def test_nvlinks_between_pairs_are_links_as_wide_as_there_are() -> None:
    rows = ["X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X"]
    node = describe(matrix_text(rows), "mesh", NVLINK)
    assert widths(node) == {
        (i, j): int(entry[2:]) for i, row in enumerate(rows) for j, entry in enumerate(row.split()) if "NV" in entry
    }
    assert all(link.alpha_s == 0.7e-6 for link in node.links)


def test_pcie_joins_what_nvlinks_do_not_and_shares_uplinks() -> None:
    node = describe(matrix_text(BRIDGED, 2), "pcie", NVLINK)
    held = {(link.source, link.target): link.resources for link in node.links}
    assert len(held) == 12
    assert held[0, 1] == ("gpu0:up", "gpu1:down")
    assert held[2, 3] == ("gpu2:up", "gpu3:down")
    assert held[0, 2] == ("gpu0:up", "bridge0:up", "socket0:out", "socket1:in", "gpu2:down")
    assert held[3, 1] == ("gpu3:up", "socket1:out", "socket0:in", "bridge0:down", "gpu1:down")
    assert [nic.ranks for nic in node.nics] == [(0, 1), (2, 3)]


def test_pairs_with_nvlinks_take_no_pcie_where_others_do() -> None:
    rows = ["X NV4 SYS", "NV4 X SYS", "SYS SYS X"]
    held = {(link.source, link.target): link.resources for link in describe(matrix_text(rows), "three", NVLINK).links}
    assert held[0, 1] == ()
    assert held[0, 2] == ("gpu0:up", "socket0:out", "socket1:in", "gpu2:down")


def test_gpus_that_are_as_near_share_out_the_nics() -> None:
    rows = ["X PXB PXB PXB", "PXB X PXB PXB"]
    assert [nic.ranks for nic in describe(matrix_text(rows, 2), "two", NVLINK).nics] == [(0,), (1,)]


def test_the_dump_of_nccl_holds_bandwidths() -> None:
    links = [(0, "0000:10:00.0", 2), (1, "0000:00:00.0", 2)]
    node = describe(nccl_text(4, links, 2), "four")
    costs = {(link.source, link.target): link.beta_s_per_byte for link in node.links}
    assert costs[0, 1] == pytest.approx(1 / 50e9)
    assert costs[0, 2] == pytest.approx(8 / (16e9 * 16 * 128 / 130))
    held = {(link.source, link.target): link.resources for link in node.links}
    assert held[2, 3] == ("gpu2:up", "gpu3:down")
    assert held[0, 2] == ("gpu0:up", "bridge0:up", "socket0:out", "socket1:in", "bridge1:down", "gpu2:down")
    assert [(nic.ranks, nic.beta_s_per_byte) for nic in node.nics] == [
        ((0, 1), pytest.approx(1 / 25e9)), ((2, 3), pytest.approx(1 / 25e9)),
    ]  # fmt: skip
    assert "data sheet" in node.source


def test_nvlinks_that_end_elsewhere_are_those_of_switches() -> None:
    links = [(gpu, f"0000:c{k}:00.0", 2) for gpu in range(8) for k in range(6)]
    node = describe(nccl_text(8, links, 4), "a100")
    assert [(one.ranks, one.beta_s_per_byte) for one in node.switches] == [(tuple(range(8)), pytest.approx(1 / 300e9))]
    assert not node.links
    assert [nic.ranks for nic in node.nics] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_hwloc_says_what_is_near_and_how_fast_nvlinks_are() -> None:
    node = describe(hwloc_text(4, lambda i, j: 50_000 if i + j == 3 else 25_000), "four", NVLINK)
    assert widths(node) == {(i, j): 2 if i + j == 3 else 1 for i in range(4) for j in range(4) if i != j}
    assert [nic.ranks for nic in node.nics] == [(0,), (1,), (2,), (3,)]
    plain = describe(hwloc_text(2), "two", Rates(nic_bytes_per_s=25e9))
    assert plain.links[0].beta_s_per_byte == pytest.approx(1 / 31.5e9)


def test_every_rank_reaches_every_other() -> None:
    for text in (matrix_text(SWITCHED), matrix_text(BRIDGED, 2), nccl_text(5, [], 1), hwloc_text(3)):
        topology = describe(text, "machine", NVLINK).cluster(1)
        assert nx.is_strongly_connected(topology.to_networkx())


# -- costs -------------------------------------------------------------------------------------------------------------


def measured(alpha_us: float, gb_per_s: float, **off: float) -> str:
    sizes = [8 * 2**k for k in range(26)]
    return table_text(
        [(size, (alpha_us + size / gb_per_s / 1e3) * off.get(f"at{k}", 1.0)) for k, size in enumerate(sizes)]
    )


def test_a_line_is_fitted_through_measured_times() -> None:
    found = read_measured(measured(9.0, 20.0), "table")
    assert found.alpha_s == pytest.approx(9e-6, rel=0.01)
    assert found.beta_s_per_byte == pytest.approx(5e-11, rel=0.01)
    assert found.spread < 0.01


def test_rows_that_are_off_do_not_move_the_line() -> None:
    found = read_measured(measured(9.0, 20.0, at3=10.0, at12=5.0, at22=1.5), "table")
    assert found.alpha_s == pytest.approx(9e-6, rel=0.05)
    assert found.beta_s_per_byte == pytest.approx(5e-11, rel=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_noise_moves_the_line_little(seed: int) -> None:
    noise = np.random.default_rng(seed).lognormal(0, 0.05, 26)
    found = read_measured(measured(9.0, 20.0, **{f"at{k}": float(noise[k]) for k in range(26)}), "table")
    assert found.alpha_s == pytest.approx(9e-6, rel=0.1)
    assert found.beta_s_per_byte == pytest.approx(5e-11, rel=0.1)


def test_what_is_measured_goes_before_what_is_said() -> None:
    rates = Rates(nvlink_bytes_per_s=1e9, nvlink_measured=Measured(9e-6, 1e-10, 0.02))
    node = describe(matrix_text(["X NV2 NV1", "NV2 X NV1", "NV1 NV1 X"]), "three", rates)
    costs = {(link.source, link.target): (link.alpha_s, link.beta_s_per_byte) for link in node.links}
    assert costs[0, 1] == (9e-6, pytest.approx(1e-10))
    assert costs[0, 2] == (9e-6, pytest.approx(2e-10))
    assert "nvlink measured, 2% off the line in the median" in node.source


# -- what is refused ---------------------------------------------------------------------------------------------------

BAD = [
    ("hello", "must be what `nvidia-smi topo -m` prints"),
    ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tPIX\t0-31\nGPU1\tPIX", "row GPU1: must have 2 entries, got 1"),
    (matrix_text(["X PIX", "PIX"]), "row GPU1, column GPU1: must be X, NV#"),
    (matrix_text(["X QPI", "QPI X"]), "row GPU0, column GPU1: must be X, NV# or one of PIX, .*, got 'QPI'"),
    (matrix_text(["X NV2", "NV2 X"]), r"nvlink: text doesn't say how fast it is; give a bandwidth \(--nvlink 25GB/s\)"),
    (matrix_text(["X SYS", "SYS X"]), "pcie: text doesn't say"),
    ("<system/>", "must hold at least one GPU"),
    ("<system>", "must be well-formed XML"),
    ("<html/>", "must be NCCL's dump .* got 'html'"),
    ('<!DOCTYPE a [<!ENTITY b "c">]><system/>', "no entities"),
    (nccl_text(2, [], 1, speed=-1), "net: speed must be a number >= 0, got '-1'"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_what_is_no_description_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        describe(text, "machine", where="text")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a table of nccl-tests"),
        (table_text([(8, 1.0), (16, 1.0)]), "must hold at least 4 sizes, got 2"),
        (table_text([(8 * 2**k, 30.0 - k) for k in range(8)]), "times must rise with sizes"),
        (table_text([(2**k, 10.0) for k in range(8)]).replace("10.00", "slow"), "a row must hold numbers"),
    ],
)
def test_what_is_no_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_measured(text, "table")


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_file_that_solve_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text(nccl_text(4, [], 2))
    (tmp_path / "table.txt").write_text(measured(9.0, 20.0))
    output = tmp_path / "machine.json"
    said = ["--nic-measured", str(tmp_path / "table.txt"), "--json"]
    assert main(["convert", str(tmp_path / "dump.xml"), "-o", str(output), *said]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["ranks"], found["links"], found["nics"]) == ("dump", 4, 12, 2)
    node = read_node(output)
    assert node.nics[0] == NicTemplate((0, 1), pytest.approx(9e-6, rel=0.01), pytest.approx(5e-11, rel=0.01))
    asked = [
        "solve",
        "taccl",
        "--topology-file",
        str(output),
        "--nodes",
        "2",
        "--size",
        "1MB",
        "--chunks",
        "1",
        "--quiet",
    ]
    assert main([*asked, "-o", str(tmp_path / "plan.json")]) == 0


def test_the_command_says_in_one_line_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "matrix.txt").write_text(matrix_text(["X SYS", "SYS X"]))
    output = tmp_path / "machine.json"
    for arguments, message in (
        ([], "--pcie: "),
        (["--pcie", "fast"], "--pcie: must be a number and a unit"),
        (["--pcie-measured", str(tmp_path / "none")], f"cannot read {tmp_path / 'none'}: No such file"),
    ):
        code, _, err = run(capsys, "convert", str(tmp_path / "matrix.txt"), "-o", str(output), *arguments)
        assert code == 2
        assert err.startswith("gapless: error: ") or "gapless convert: error: " in err
        assert message in err
        assert len(err.splitlines()) == 1
    assert not output.exists()


def test_links_that_are_alike_in_both_directions_are_written_once(tmp_path: Path) -> None:
    (tmp_path / "matrix.txt").write_text(matrix_text(["X NV2 NV1", "NV2 X NV1", "NV1 NV1 X"]))
    output = tmp_path / "machine.json"
    assert main(["convert", str(tmp_path / "matrix.txt"), "-o", str(output), "--nvlink", "25GB/s", "--quiet"]) == 0
    assert len(json.loads(output.read_text())["links"]) == 3
    assert LocalLink(1, 0, 0.7e-6, 2e-11) in read_node(output).links


def test_a_topology_isnt_converted_but_taken_as_it_is() -> None:
    with pytest.raises(InputError, match=r"hwloc's XML; this is a topology, which --topology-file takes$"):
        describe('{"format": "gapless.topology", "version": 1}', "name")
