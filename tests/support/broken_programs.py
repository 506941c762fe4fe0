"""Single mistakes in TACCL-EF programs: each kind yields the broken programs, or texts, that it makes of one."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator

from broken_dependencies import (
    dependency_cycle,
    dependency_on_missing_block,
    dependency_on_missing_step,
    dependency_on_nop,
    far_dependency,
    half_a_dependency,
    nop_at_the_end,
    nop_before_a_free_step,
    nop_without_dependency,
    order_cycle,
    own_block_dependency,
    padded,
    target_without_hasdep,
    waiting,
)
from program_edits import (
    RECEIVING,
    WRITING,
    Broken,
    sites,
    step_at,
    with_block,
    with_gpu,
    with_new_step,
    with_step,
    without_step,
)

from gapless.io.taccl_ef import Gpu, Program, Step, ThreadBlock, xml_text


def fields(**changes: object) -> Callable[[Program], Iterator[Broken]]:
    def change(program: Program) -> Iterator[Broken]:
        yield dataclasses.replace(program, **changes)

    return change


def text(pattern: str, replacement: str) -> Callable[[Program], Iterator[Broken]]:
    def change(program: Program) -> Iterator[Broken]:
        whole = xml_text(program)
        for match in re.finditer(pattern, whole):
            yield whole[: match.start()] + match.expand(replacement) + whole[match.end() :]

    return change


def every_step(*types: str, **changes: object) -> Callable[[Program], Iterator[Broken]]:
    def change(program: Program) -> Iterator[Broken]:
        for site in sites(program, *types):
            yield with_step(program, site, **changes)

    return change


def missing_attributes(tag: str) -> Callable[[Program], Iterator[Broken]]:
    """Each attribute of the first element of a kind, except those that only one runtime needs."""

    def change(program: Program) -> Iterator[Broken]:
        whole = xml_text(program)
        line = next(line for line in whole.splitlines() if line.lstrip().startswith(f"<{tag} "))
        for name in re.findall(r" (\w+)=", line):
            if name not in ("name", "outofplace", "minBytes", "maxBytes", "redop"):
                yield whole.replace(line, re.sub(rf' {name}="[^"]*"', "", line), 1)

    return change


def missing_gpu(program: Program) -> Iterator[Broken]:
    for gpu in program.gpus:
        yield dataclasses.replace(program, gpus=tuple(each for each in program.gpus if each is not gpu))


def wrong_chunk_count(program: Program) -> Iterator[Broken]:
    for gpu in program.gpus:
        yield with_gpu(program, gpu.id, i_chunks=gpu.i_chunks + 1)
        yield with_gpu(program, gpu.id, o_chunks=gpu.o_chunks + 1)


def duplicate_block(program: Program) -> Iterator[Broken]:
    for gpu in program.gpus:
        for block in gpu.threadblocks[1:]:
            yield with_block(program, gpu.id, block.id, id=block.id - 1)


def connected(program: Program) -> Iterator[tuple[Gpu, ThreadBlock, str]]:
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            for title in ("send", "recv"):
                if getattr(block, title) >= 0:
                    yield gpu, block, title


def wrong_peer(program: Program) -> Iterator[Broken]:
    for gpu, block, title in connected(program):
        other = next(rank for rank in range(program.ngpus) if rank not in (gpu.id, getattr(block, title)))
        yield with_block(program, gpu.id, block.id, **{title: other})


def own_rank_as_peer(program: Program) -> Iterator[Broken]:
    for gpu, block, title in connected(program):
        yield with_block(program, gpu.id, block.id, **{title: gpu.id})


def peer_beyond(program: Program) -> Iterator[Broken]:
    for gpu, block, title in connected(program):
        yield with_block(program, gpu.id, block.id, **{title: program.ngpus})


def no_peer(program: Program) -> Iterator[Broken]:
    for gpu, block, title in connected(program):
        yield with_block(program, gpu.id, block.id, **{title: -1})


def channel(number: int) -> Callable[[Program], Iterator[Broken]]:
    def change(program: Program) -> Iterator[Broken]:
        for gpu, block, _ in connected(program):
            more = dataclasses.replace(program, nchannels=max(program.nchannels, number + 1))
            yield with_block(more, gpu.id, block.id, chan=number)

    return change


def claimed_twice(program: Program) -> Iterator[Broken]:
    for gpu, block, title in connected(program):
        peers = {"send": -1, "recv": -1, title: getattr(block, title)}
        extra = ThreadBlock(len(gpu.threadblocks), **peers, chan=block.chan)
        yield with_gpu(program, gpu.id, threadblocks=(*gpu.threadblocks, extra))


def gap_in_steps(program: Program) -> Iterator[Broken]:
    for site in sites(program):
        yield with_step(program, site, s=site[2] + 1)


def step_limit(program: Program) -> Iterator[Broken]:
    block = program.gpus[0].threadblocks[-1]
    copies = tuple(Step(number, "cpy", "i", 0, "i", 0, 1) for number in range(65))
    extra = ThreadBlock(block.id + 1, -1, -1, 0, copies)
    yield with_gpu(program, 0, threadblocks=(*program.gpus[0].threadblocks, extra))


def chunks_of(program: Program, gpu: int, buffer: str) -> int:
    return getattr(program.gpus[gpu], f"{buffer}_chunks")


def offset_out_of_range(program: Program) -> Iterator[Broken]:
    for site in sites(program, *WRITING):
        step = step_at(program, site)
        yield with_step(program, site, dstoff=chunks_of(program, site[0], step.dstbuf))
    for site in sites(program, "s", "rrc", "rrs", "rrcs", "cpy"):
        yield with_step(program, site, srcoff=-1)


def count_overrun(program: Program) -> Iterator[Broken]:
    """The first offset is inside the buffer, the last chunk is not."""
    for site in sites(program, *WRITING):
        step = step_at(program, site)
        yield with_step(program, site, cnt=chunks_of(program, site[0], step.dstbuf) - step.dstoff + 1)


def count_that_differs(program: Program) -> Iterator[Broken]:
    for site in sites(program, "s"):
        step = step_at(program, site)
        if step.srcoff + step.cnt < chunks_of(program, site[0], step.srcbuf):
            yield with_step(program, site, cnt=step.cnt + 1)


def missing_receive(program: Program) -> Iterator[Broken]:
    for site in sites(program, "r", "rrc"):
        yield without_step(program, site)


def missing_send(program: Program) -> Iterator[Broken]:
    for site in sites(program, "s"):
        yield without_step(program, site)


def swapped_receives(program: Program) -> Iterator[Broken]:
    """Two neighbouring receives of a block change places, with all but their dependencies."""
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            received = [step for step in block.steps if step.type in RECEIVING]
            for one, other in itertools.pairwise(received):
                if one.type == other.type and one.cnt == other.cnt:
                    places = [
                        {name: getattr(step, name) for name in ("srcbuf", "srcoff", "dstbuf", "dstoff")}
                        for step in (one, other)
                    ]
                    first = with_step(program, (gpu.id, block.id, one.s), **places[1])
                    yield with_step(first, (gpu.id, block.id, other.s), **places[0])


def wrong_destination(program: Program) -> Iterator[Broken]:
    for site in sites(program, *WRITING):
        step = step_at(program, site)
        if chunks_of(program, site[0], step.dstbuf) > step.cnt:
            last = chunks_of(program, site[0], step.dstbuf) - step.cnt
            yield with_step(program, site, dstoff=step.dstoff - 1 if step.dstoff == last else step.dstoff + 1)


def wrong_source(program: Program) -> Iterator[Broken]:
    for site in sites(program, "s", "rrc", "rrs", "rrcs", "cpy"):
        step = step_at(program, site)
        if chunks_of(program, site[0], step.srcbuf) > step.cnt:
            last = chunks_of(program, site[0], step.srcbuf) - step.cnt
            yield with_step(program, site, srcoff=step.srcoff - 1 if step.srcoff == last else step.srcoff + 1)


def into_the_input(program: Program) -> Iterator[Broken]:
    """What belongs to the output is written over the input."""
    for site in sites(program, *WRITING):
        step = step_at(program, site)
        if step.dstbuf == "o" and step.dstoff + step.cnt <= chunks_of(program, site[0], "i"):
            yield with_step(program, site, dstbuf="i")


def missing_copy(program: Program) -> Iterator[Broken]:
    for site in sites(program, "cpy"):
        yield without_step(program, site)


def data_race(program: Program) -> Iterator[Broken]:
    """A step no longer waits for the one that writes what it reads.

    What it overwrites may be in order without the dependency: by the message that the reader sent on.
    """
    for site in waiting(program):
        step = step_at(program, site)
        target = step_at(program, (site[0], step.depid, step.deps))
        span = range(max(step.srcoff, target.dstoff), min(step.srcoff + step.cnt, target.dstoff + target.cnt))
        reads = step.type in ("s", "rrc", "rrs", "rrcs", "cpy") and target.type in WRITING
        if reads and step.srcbuf == target.dstbuf and len(span):
            yield with_step(program, site, depid=-1, deps=-1)


def fused_reductions(program: Program) -> Iterator[Broken]:
    """Two reductions in a row that the parser takes for one, of different cnt."""
    head = Step(0, "re", "i", 0, "o", 0, 1)
    gpu = program.gpus[0]
    if min(gpu.i_chunks, gpu.o_chunks) >= 2:
        extra = ThreadBlock(len(gpu.threadblocks), -1, -1, 0, (head, dataclasses.replace(head, s=1, cnt=2)))
        yield with_gpu(program, 0, threadblocks=(*gpu.threadblocks, extra))


def reduced_twice(program: Program) -> Iterator[Broken]:
    """What was added is added once more."""
    for gpu, tb, at in sites(program, "rrc", "rrcs"):
        step = step_at(program, (gpu, tb, at))
        if (step.srcbuf, step.srcoff) != (step.dstbuf, step.dstoff):
            again = Step(0, "re", step.srcbuf, step.srcoff, step.dstbuf, step.dstoff, step.cnt)
            yield with_new_step(program, (gpu, tb, at + 1), again)


def reduction_missing(program: Program) -> Iterator[Broken]:
    for site in sites(program, "rrc"):
        yield with_step(program, site, type="r")
    for site in sites(program, "rrs", "rrcs"):
        yield with_step(program, site, type="rcs")


def wrong_chunks_per_loop(program: Program) -> Iterator[Broken]:
    yield dataclasses.replace(program, nchunksperloop=program.nchunksperloop + 1)
    yield dataclasses.replace(program, nchunksperloop=2 * program.nchunksperloop)


Change = Callable[[Program], Iterator[Broken]]
MISTAKES: dict[str, tuple[Change, str]] = {
    # What the parsers misread: the reason is in the reader's message.
    "tab indentation": (text(r"\n    <tb", "\n\t<tb"), "tabs are not allowed"),
    "single quotes": (text(r'cnt="(\d+)"', r"cnt='\1'"), "double quotes"),
    "attribute on a second line": (text(r' deps="', '\n deps="'), "on one line"),
    "xml declaration": (text(r"^<algo", '<?xml version="1.0"?><algo'), "XML declaration"),
    "element not closed": (text(r"    </tb>\n", ""), "closes <tb>|is not closed|inside <tb> is skipped|tb-ids"),
    "too many attributes": (text(r"<tb ", "<tb " + "".join(f'a{k}="0" ' for k in range(13))), "at most 16 attributes"),
    "name over 255 characters": (text(r' redop="', f' {"n" * 256}="0" redop="'), "at most 255 characters"),
    "value over 255 characters": (text(r'redop="\w+"', f'redop="{"n" * 256}"'), "at most 255 characters"),
    "number that is none": (text(r'chan="\d+"', 'chan="first"'), "must be an integer"),
    "missing attribute of a step": (missing_attributes("step"), "is missing"),
    "missing attribute of a tb": (missing_attributes("tb"), "is missing"),
    "missing attribute of a gpu": (missing_attributes("gpu"), "is missing"),
    "missing attribute of the algo": (missing_attributes("algo"), "is missing"),
    "unknown type": (every_step(type="ra"), "type must be one of"),
    "unknown buffer": (every_step(srcbuf="x"), "srcbuf must be one of"),
    # What they load: the reason is the name of the rule.
    "unknown collective": (fields(coll="AllReduce"), "coll"),
    "protocol in lower case": (fields(proto="simple"), "proto"),
    "wrong ngpus": (lambda p: fields(ngpus=p.ngpus + 1)(p), "gpu-ids"),
    "wrong nchunksperloop": (wrong_chunks_per_loop, "chunk-count|missing-chunk"),
    "nchannels too small": (lambda p: fields(nchannels=p.nchannels - 1)(p), "nchannels"),
    "byte range reversed": (fields(min_bytes=8, max_bytes=4), "byte-range"),
    "no placement": (fields(inplace=False, outofplace=False), "placement"),
    "missing gpu element": (missing_gpu, "gpu-ids"),
    "wrong i_chunks or o_chunks": (wrong_chunk_count, "chunk-count"),
    "too many nodes": (padded(66, 64), "node-limit"),
    "too many blocks": (padded(1025, 1), "tb-limit"),
    "duplicate tb id": (duplicate_block, "tb-ids"),
    "chan 32": (channel(32), "channel"),
    "channel of one side only": (channel(7), "peer-side"),
    "wrong peer": (wrong_peer, "peer-side|triple"),
    "own rank as peer": (own_rank_as_peer, "peer"),
    "peer that does not exist": (peer_beyond, "peer"),
    "peer left out": (no_peer, "peer-needed"),
    "connection claimed twice": (claimed_twice, "triple"),
    "gap in steps": (gap_in_steps, "step-ids"),
    "step limit": (step_limit, "step-limit"),
    "offset out of range": (offset_out_of_range, "offset"),
    "count overrun": (count_overrun, "offset|cnt"),
    "cnt 0": (every_step(cnt=0), "cnt"),
    "cnt 72": (every_step(cnt=72), "cnt"),
    "counts that differ": (count_that_differs, "cnt-mismatch"),
    "missing receive": (missing_receive, "send-receive|nop-chain|dep-own-block|dep-nop|dep-missing|cnt-mismatch"),
    "missing send": (missing_send, "send-receive|nop-chain|dep-nop|dep-missing|cnt-mismatch"),
    "swapped receives": (swapped_receives, "wrong-chunk"),
    "wrong destination": (wrong_destination, "wrong-chunk|missing-chunk|race"),
    "wrong source": (wrong_source, "wrong-chunk|unwritten-read|race"),
    "output written over the input": (into_the_input, "missing-chunk|wrong-chunk|race"),
    "missing own-chunk copy": (missing_copy, "missing-chunk"),
    "dependency on a missing block": (dependency_on_missing_block, "dep-missing"),
    "dependency on a missing step": (dependency_on_missing_step, "dep-missing"),
    "half a dependency": (half_a_dependency, "dep-missing"),
    "dependency target without hasdep": (target_without_hasdep, "dep-hasdep"),
    "dependency on the own block": (own_block_dependency, "dep-own-block"),
    "dependency on block 128 or more": (far_dependency, "dep-limit"),
    "dependency on a nop": (dependency_on_nop, "dep-nop"),
    "nop without dependency": (nop_without_dependency, "nop-dep|nop-chain"),
    "nop at the end": (nop_at_the_end, "nop-chain"),
    "step after a nop without dependency": (nop_before_a_free_step, "nop-chain"),
    "dependency cycle": (dependency_cycle, "dep-cycle|order-cycle"),
    "order cycle": (order_cycle, "order-cycle|dep-cycle"),
    "data race": (data_race, "race|nop-chain|unwritten-read"),
    "fused reductions of different cnt": (fused_reductions, "re-fusion"),
    "reduced twice": (reduced_twice, "wrong-chunk|race"),
    "reduction missing": (reduction_missing, "wrong-chunk|offset"),
}
"""By kind: the change, and what the refusal must say (a rule's name, or words of the reader's message)."""
