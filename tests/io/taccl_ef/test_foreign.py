"""Programs as other people write them: small files, written for these tests, with what is met in the wild."""

from __future__ import annotations

import re

import pytest

from gapless.cli.main import main
from gapless.io.taccl_ef import Verdict, judge, parse_xml

Row = tuple[str, str, int, str, int, int, int, int, int]
"""type, srcbuf, srcoff, dstbuf, dstoff, cnt, depid, deps, hasdep."""
Block = tuple[int, int, int, list[Row]]
"""send, recv, chan, steps."""


def row(kind: str, source: str, target: str, cnt: int = 1, after: tuple[int, int] = (-1, -1), hasdep: int = 0) -> Row:
    """A step; places are written `i3`."""
    return kind, source[0], int(source[1:]), target[0], int(target[1:]), cnt, *after, hasdep


def nop(block: int, step: int) -> Row:
    return row("nop", "i-1", "o-1", 0, (block, step))


def file(head: str, gpus: list[tuple[str, list[Block]]], indent: str = "  ", between: str = "\n") -> str:
    """A file of elements that are written one a line."""
    lines = [f"<algo {head}>"]
    for rank, (chunks, blocks) in enumerate(gpus):
        lines.append(f'{indent}<gpu id="{rank}" {chunks}>')
        for number, (send, recv, chan, rows) in enumerate(blocks):
            lines.append(f'{indent * 2}<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">')
            for s, (kind, srcbuf, srcoff, dstbuf, dstoff, cnt, depid, deps, hasdep) in enumerate(rows):
                lines.append(
                    f'{indent * 3}<step s="{s}" type="{kind}" srcbuf="{srcbuf}" srcoff="{srcoff}" dstbuf="{dstbuf}" '
                    f'dstoff="{dstoff}" cnt="{cnt}" depid="{depid}" deps="{deps}" hasdep="{hasdep}"/>'
                )
            lines.append(f"{indent * 2}</tb>")
        lines.append(f"{indent}</gpu>")
    return between.join([*lines, "</algo>"])


OF_A_TOOL = 'name="{name}" proto="{proto}" nchannels="{channels}" nchunksperloop="{chunks}" ngpus="{ranks}" '
OF_A_TOOL += 'coll="{coll}" inplace="{inplace}"'
OF_THE_EXECUTOR = OF_A_TOOL + ' outofplace="{outofplace}" minBytes="0" maxBytes="{most}"'


def all_pairs_allreduce() -> str:
    """Older attributes, in place, scratch, nops for several dependencies, fused reductions of what four blocks brought.

    Each of 4 ranks owns 2 of 8 chunks: it gets them from the others into scratch, adds them up, and sends them round.
    """
    gpus = []
    for rank in range(4):
        own, peers = 2 * rank, [peer for peer in range(4) if peer != rank]
        adding = [nop(block, 1) for block in (2, 3)]
        adding += [row("re", f"s{2 * slot}", f"i{own}", 2, (1, 1) if not slot else (-1, -1)) for slot in range(3)]
        adding[-1] = row("re", "s4", f"i{own}", 2, hasdep=1)
        blocks: list[Block] = [(-1, -1, 0, adding)]
        for slot, peer in enumerate(peers):
            there = rank - (rank > peer)
            exchanged = [row("s", f"i{2 * peer}", f"s{2 * there}", 2), row("r", f"i{own}", f"s{2 * slot}", 2, hasdep=1)]
            again = [row("s", f"i{own}", f"i{own}", 2, (0, 4)), row("r", f"i{2 * peer}", f"i{2 * peer}", 2)]
            blocks.append((peer, peer, 0, exchanged + again))
        gpus.append(('i_chunks="8" o_chunks="0" s_chunks="6"', blocks))
    head = OF_A_TOOL.format(name="pairs", proto="LL", channels=1, chunks=8, ranks=4, coll="allreduce", inplace=1)
    return file(head, gpus)


def ring_allgather() -> str:
    """One block a rank that sends and receives by turns, in place: no chunks of input, no limit of the size."""
    gpus = []
    for rank in range(4):
        rows = []
        for at in range(3):
            here, there = f"o{(rank - at) % 4}", f"o{(rank - at - 1) % 4}"
            rows += [row("s", here, here), row("r", there, there)]
        gpus.append(('i_chunks="0" o_chunks="4" s_chunks="0"', [((rank + 1) % 4, (rank - 1) % 4, 0, rows)]))
    head = OF_THE_EXECUTOR.format(
        name="ring", proto="LL128", channels=1, chunks=4, ranks=4, coll="allgather", inplace=1, outofplace=0, most=0
    )
    return file(head, gpus)


def hierarchical_allgather() -> str:
    """Two nodes of two: across first, on two channels, then what came is sent on within the node (rcs)."""
    gpus = []
    for rank in range(4):
        mate, far = rank ^ 1, rank ^ 2
        blocks: list[Block] = []
        for chan in range(2):
            own, theirs = 2 * rank + chan, 2 * far + chan
            last = 2 * (far ^ 1) + chan
            blocks.append((-1, mate, chan, [row("r", "i0", f"o{2 * mate + chan}"), row("r", f"o{last}", f"o{last}")]))
            blocks.append((mate, far, chan, [row("s", f"i{chan}", f"o{own}"), row("rcs", f"i{chan}", f"o{theirs}")]))
            blocks.append((far, -1, chan, [row("s", f"i{chan}", f"o{own}"), row("cpy", f"i{chan}", f"o{own}")]))
        gpus.append(('i_chunks="2" o_chunks="8" s_chunks="0"', blocks))
    head = OF_THE_EXECUTOR.format(
        name="levels", proto="LL", channels=2, chunks=8, ranks=4, coll="allgather", inplace=0, outofplace=1, most=65536
    )
    return "<!-- Copyright (c) somebody. -->\n<!-- Licensed somehow. -->\n" + file(head, gpus) + "\n"


def tree_allreduce() -> str:
    """Up a binomial tree and down again, sums taken from the peer's buffer name and stored over the own chunk."""
    up_down = {
        0: [(1, [row("rrc", "i0", "i0", hasdep=1), row("s", "i0", "i0", after=(1, 0))]),
            (2, [row("rrc", "i0", "i0", after=(0, 0), hasdep=1), row("s", "i0", "i0")])],
        1: [(0, [row("s", "i0", "i0"), row("r", "i0", "i0")])],
        2: [(3, [row("rrc", "i0", "i0", hasdep=1), row("s", "i0", "i0", after=(1, 1))]),
            (0, [row("s", "i0", "i0", after=(0, 0)), row("r", "i0", "i0", hasdep=1)])],
        3: [(2, [row("s", "i0", "i0"), row("r", "i0", "i0")])],
    }  # fmt: skip
    gpus = [
        ('i_chunks="1" o_chunks="0" s_chunks="0"', [(peer, peer, 0, rows) for peer, rows in up_down[rank]])
        for rank in range(4)
    ]
    head = OF_A_TOOL.format(name="tree", proto="Simple", channels=1, chunks=1, ranks=4, coll="allreduce", inplace=1)
    return file(head, gpus)


def ring_reduce_scatter() -> str:
    """The older runtime's name of the collective; every sum goes on at once (rrs), the last one stays (rrc)."""
    gpus = []
    for rank in range(4):
        rows = [row("s", f"i{(rank - 1) % 4}", f"i{(rank - 1) % 4}")]
        for at in range(2, 4):
            rows.append(row("rrs", f"i{(rank - at) % 4}", f"i{(rank - at) % 4}"))
        rows.append(row("rrc", f"i{rank}", f"i{rank}"))
        gpus.append(('i_chunks="4" o_chunks="0" s_chunks="0"', [((rank + 1) % 4, (rank - 1) % 4, 0, rows)]))
    head = OF_A_TOOL.format(name="rs", proto="LL", channels=1, chunks=4, ranks=4, coll="reduce_scatter", inplace=1)
    return file(head + ' redop="sum" nthreads="0"', gpus)


def two_step_alltoall() -> str:
    """Two nodes of two: what goes to the other node is gathered in scratch first, and crosses as one message of two."""
    gpus = []
    for rank in range(4):
        mate, far = rank ^ 1, rank ^ 2
        there = far & 2  # the other node's first rank; the ranks of a link have one number within their nodes
        local = rank & 1
        mine = [row("cpy", f"i{there + local}", f"s{local}", hasdep=1), row("cpy", f"i{rank}", f"o{rank}")]
        blocks: list[Block] = [
            (-1, -1, 0, mine),
            (mate, mate, 0, [row("s", f"i{there + 1 - local}", "s0"), row("r", "i0", f"s{1 - local}", hasdep=1),
                             row("s", f"i{mate}", "o0"), row("r", "i0", f"o{mate}")]),
            (far, far, 0, [nop(1, 1), row("s", "s0", "o0", 2, (0, 0)), row("r", "s0", f"o{there}", 2)]),
        ]  # fmt: skip
        gpus.append(('i_chunks="4" o_chunks="4" s_chunks="2"', blocks))
    head = OF_A_TOOL.format(name="2step", proto="Simple", channels=1, chunks=4, ranks=4, coll="alltoall", inplace=0)
    return file(head, gpus)


def to_the_next() -> str:
    """A collective of one's own: every rank's input goes to the next rank's output, the last has no input."""
    gpus = []
    for rank in range(3):
        blocks: list[Block] = []
        if rank:
            blocks.append((-1, rank - 1, 0, [row("r", "i0", "o0", 2)]))
        if rank < 2:
            blocks.append((rank + 1, -1, 0, [row("s", "i0", "o0", 2)]))
        gpus.append((f'i_chunks="{2 * (rank < 2)}" o_chunks="{2 * (rank > 0)}" s_chunks="0"', blocks))
    head = OF_A_TOOL.format(name="next", proto="Simple", channels=1, chunks=2, ranks=3, coll="custom", inplace=1)
    return file(head, gpus)


def judged(text: str, runtime: str = "original") -> Verdict:
    program, warnings = parse_xml(text, "f.xml")
    return judge(program, runtime, warnings=tuple(warnings))


WILD = {
    "all-pairs": (all_pairs_allreduce, "allreduce on 4 GPUs: valid, executed in place", "original"),
    "ring": (ring_allgather, "allgather on 4 GPUs: valid, executed in place", "executor"),
    "hierarchical": (hierarchical_allgather, "allgather on 4 GPUs: valid, executed out of place", "original"),
    "tree": (tree_allreduce, "allreduce on 4 GPUs: valid, executed in place", "original"),
    "reduce-scatter": (ring_reduce_scatter, "reduce_scatter on 4 GPUs: valid, executed in place", "original"),
    "two-step": (two_step_alltoall, "alltoall on 4 GPUs: valid, executed out of place", "original"),
    "custom": (
        to_the_next,
        "custom on 3 GPUs: well-formed, no deadlock, no race; its result can't be judged",
        "original",
    ),
}


@pytest.mark.parametrize("name", WILD)
def test_what_is_met_in_the_wild_is_valid(name, tmp_path, capsys):
    write, said, runtime = WILD[name]
    (tmp_path / "theirs.xml").write_text(write())
    assert main(["check", str(tmp_path / "theirs.xml"), "--runtime", runtime]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(said)


@pytest.mark.parametrize("name", WILD)
@pytest.mark.parametrize("layout", [("", ""), ("    ", "\n"), (" ", "\r\n"), ("  ", "\n\n \n")])
def test_neither_indentation_nor_the_ends_of_lines_matter(name, layout):
    write, said, runtime = WILD[name]
    text = re.sub(r">\n *", f">{layout[1]}{layout[0]}", write())
    assert judged(text, runtime).summary().startswith(said)


@pytest.mark.parametrize("name", WILD)
def test_a_wrong_offset_in_a_foreign_file_is_found(name):
    write, *_ = WILD[name]
    text = write()
    lines = [line for line in re.findall(r"<step .*/>", text) if 'type="r' in line]
    changed = re.sub(r'dstoff="(\d+)"', lambda at: f'dstoff="{int(at.group(1)) + 1}"', lines[-1])
    if name == "custom":  # nobody knows what it should do, but the offset leaves the buffer
        assert {each.rule for each in judged(text.replace(lines[-1], changed)).problems} == {"offset"}
        return
    assert judged(text.replace(lines[-1], changed)).problems


def test_a_long_name_is_no_fault_for_it_is_only_cut():
    name = "Allgather(n=4)-Relayed(local=Ring,copies=2)-steps=20-improve-1630536923"
    assert (
        judged(ring_allgather().replace('name="ring"', f'name="{name}"'), "original").problems[0].rule == "byte-range"
    )
    assert judged(ring_allgather().replace('name="ring"', f'name="{name}"'), "executor").is_valid


def test_channels_that_nobody_uses_are_a_warning():
    verdict = judged(ring_allgather().replace('nchannels="1"', 'nchannels="4"'), "executor")
    assert verdict.is_valid
    assert "nchannels is 4, the program uses 1: the others are idle" in verdict.warnings


def test_the_step_of_a_dependency_counts_only_with_a_block():
    text = hierarchical_allgather().replace('depid="-1" deps="-1"', 'depid="-1" deps="0"')
    assert judged(text).is_valid


def test_what_a_nop_counts_is_nobodys_business():
    assert judged(all_pairs_allreduce().replace('dstoff="-1" cnt="0"', 'dstoff="-1" cnt="1"')).is_valid


def test_the_executor_takes_fewer_chunks_than_the_buffer_has_and_the_original_does_not():
    text = ring_reduce_scatter().replace('reduce_scatter"', 'reducescatter"').replace(' nthreads="0"', "")
    text = text.replace('o_chunks="0"', 'o_chunks="1"').replace('nchunksperloop="4"', 'nchunksperloop="8"')
    assert {each.rule for each in judged(text, "both").problems} >= {"chunk-count"}
    assert "chunk-count" not in {each.rule for each in judged(text, "executor").problems}


def test_a_custom_program_that_only_works_with_two_buffers_says_so():
    verdict = judged(to_the_next())
    assert verdict.is_valid
    assert "claims to work in place and does only out of place: call it with two buffers" in verdict.warnings[-1]


def test_a_custom_program_counts_both_buffers_in_chunks_of_the_loop():
    text = to_the_next().replace('i_chunks="2"', 'i_chunks="1"', 1)
    assert {each.rule for each in judged(text, "original").problems} >= {"chunk-count"}
