"""Single mistakes in what the steps of TACCL-EF programs wait for: dependencies, nops, cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from program_edits import RECEIVING, SENDING, Broken, Site, sites, step_at, with_gpu, with_new_step, with_step

from gapless.io.taccl_ef import Program, Step, ThreadBlock


def padded(count: int, steps: int) -> Callable[[Program], Iterator[Broken]]:
    """More blocks, each with steps that copy a chunk onto itself."""

    def change(program: Program) -> Iterator[Broken]:
        blocks = program.gpus[0].threadblocks
        copies = tuple(Step(number, "cpy", "i", 0, "i", 0, 1) for number in range(steps))
        extra = tuple(ThreadBlock(len(blocks) + number, -1, -1, 0, copies) for number in range(count))
        yield with_gpu(program, 0, threadblocks=blocks + extra)

    return change


def waiting(program: Program) -> list[Site]:
    return [
        (gpu.id, block.id, step.s)
        for gpu in program.gpus
        for block in gpu.threadblocks
        for step in block.steps
        if step.depid >= 0
    ]


def dependency_on_missing_block(program: Program) -> Iterator[Broken]:
    for site in sites(program):
        yield with_step(program, site, depid=len(program.gpus[site[0]].threadblocks), deps=0)


def dependency_on_missing_step(program: Program) -> Iterator[Broken]:
    for gpu, tb, at in sites(program):
        for block in program.gpus[gpu].threadblocks:
            if block.id != tb:
                yield with_step(program, (gpu, tb, at), depid=block.id, deps=len(block.steps))


def half_a_dependency(program: Program) -> Iterator[Broken]:
    for site in waiting(program):
        yield with_step(program, site, deps=-1)


def target_without_hasdep(program: Program) -> Iterator[Broken]:
    for site in waiting(program):
        step = step_at(program, site)
        yield with_step(program, (site[0], step.depid, step.deps), hasdep=False)


def own_block_dependency(program: Program) -> Iterator[Broken]:
    for gpu, tb, at in sites(program):
        if at:
            told = with_step(program, (gpu, tb, at - 1), hasdep=True)
            yield with_step(told, (gpu, tb, at), depid=tb, deps=at - 1)


def far_dependency(program: Program) -> Iterator[Broken]:
    for far in padded(130, 1)(program):
        assert isinstance(far, Program)
        told = with_step(far, (0, 129, 0), hasdep=True)
        yield with_step(told, (0, 0, 0), depid=129, deps=0)


def dependency_on_nop(program: Program) -> Iterator[Broken]:
    """A nop that waits properly, and another block's step that waits for the nop instead of a real step."""
    for gpu, tb, at in sites(program):
        step = step_at(program, (gpu, tb, at))
        target = next((block.id for block in program.gpus[gpu].threadblocks if block.id != tb and block.steps), -1)
        if target < 0 or step.depid >= 0:
            continue
        nop = Step(0, "nop", "i", -1, "o", -1, 0, target, 0)
        broken = with_new_step(program, (gpu, tb, at), nop)
        broken = with_step(broken, (gpu, tb, at + 1), depid=target, deps=0)
        broken = with_step(broken, (gpu, target, 0), hasdep=True)
        last = len(broken.gpus[gpu].threadblocks[target].steps) - 1
        yield with_step(broken, (gpu, target, last), depid=tb, deps=at)


def nop_without_dependency(program: Program) -> Iterator[Broken]:
    for site in sites(program):
        yield with_new_step(program, site, Step(0, "nop", "i", -1, "o", -1, 0))


def nop_at_the_end(program: Program) -> Iterator[Broken]:
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            target = (
                next(other.id for other in gpu.threadblocks if other.id != block.id)
                if len(gpu.threadblocks) > 1
                else -1
            )
            if target >= 0:
                told = with_step(program, (gpu.id, target, 0), hasdep=True)
                nop = Step(0, "nop", "i", -1, "o", -1, 0, target, 0)
                yield with_new_step(told, (gpu.id, block.id, len(block.steps)), nop)


def nop_before_a_free_step(program: Program) -> Iterator[Broken]:
    for gpu, tb, at in sites(program):
        target = next((block.id for block in program.gpus[gpu].threadblocks if block.id != tb), -1)
        if target >= 0 and step_at(program, (gpu, tb, at)).depid < 0:
            told = with_step(program, (gpu, target, 0), hasdep=True)
            yield with_new_step(told, (gpu, tb, at), Step(0, "nop", "i", -1, "o", -1, 0, target, 0))


def dependency_cycle(program: Program) -> Iterator[Broken]:
    """The step that another one waits for waits for that one too."""
    for site in waiting(program):
        step = step_at(program, site)
        if step.type != "nop":
            told = with_step(program, site, hasdep=True)
            yield with_step(told, (site[0], step.depid, step.deps), depid=site[1], deps=site[2])


def order_cycle(program: Program) -> Iterator[Broken]:
    """The first send of a rank waits for the last receive of another block, which comes of what others make of it."""
    for gpu in program.gpus:
        sends = [block for block in gpu.threadblocks if block.send >= 0]
        for block in sends:
            peer = program.gpus[block.send]
            back = [other for other in peer.threadblocks if other.send == gpu.id and other.chan == block.chan]
            mine = [other for other in gpu.threadblocks if other.recv == block.send and other.chan == block.chan]
            theirs = [other for other in peer.threadblocks if other.recv == gpu.id and other.chan == block.chan]
            if not back or mine[0] is block or theirs[0] is back[0]:
                continue
            broken = program
            for rank, sender, receiver in ((gpu.id, block, mine[0]), (peer.id, back[0], theirs[0])):
                at = next(step.s for step in sender.steps if step.type in SENDING)
                brought = next(step.s for step in receiver.steps if step.type in RECEIVING)
                broken = with_step(broken, (rank, receiver.id, brought), hasdep=True)
                broken = with_step(broken, (rank, sender.id, at), depid=receiver.id, deps=brought)
            yield broken
