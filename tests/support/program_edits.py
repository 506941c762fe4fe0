"""Programs with one thing changed: a field, a block, a step more or less."""

from __future__ import annotations

import dataclasses

from gapless.io.taccl_ef import Program, Step

Broken = Program | str
WRITING = ("r", "rcs", "rrc", "rrcs", "cpy")
SENDING, RECEIVING = ("s", "rcs", "rrs", "rrcs"), ("r", "rcs", "rrc", "rrs", "rrcs")
Site = tuple[int, int, int]
"""(gpu, tb, step) as positions in the tuples, which are the ids in programs of our own."""


def sites(program: Program, *types: str) -> list[Site]:
    """The steps of these types, all real ones without any."""
    return [
        (gpu.id, block.id, step.s)
        for gpu in program.gpus
        for block in gpu.threadblocks
        for step in block.steps
        if (step.type in types if types else step.type != "nop")
    ]


def step_at(program: Program, site: Site) -> Step:
    return program.gpus[site[0]].threadblocks[site[1]].steps[site[2]]


def with_gpu(program: Program, gpu: int, **fields: object) -> Program:
    gpus = tuple(dataclasses.replace(each, **fields) if each.id == gpu else each for each in program.gpus)
    return dataclasses.replace(program, gpus=gpus)


def with_block(program: Program, gpu: int, tb: int, **fields: object) -> Program:
    blocks = list(program.gpus[gpu].threadblocks)
    blocks[tb] = dataclasses.replace(blocks[tb], **fields)
    return with_gpu(program, gpu, threadblocks=tuple(blocks))


def with_step(program: Program, site: Site, **fields: object) -> Program:
    steps = list(program.gpus[site[0]].threadblocks[site[1]].steps)
    steps[site[2]] = dataclasses.replace(steps[site[2]], **fields)
    return with_block(program, site[0], site[1], steps=tuple(steps))


def with_steps(program: Program, gpu: int, tb: int, steps: list[Step], moved: dict[int, int]) -> Program:
    """The block's steps replaced and numbered again; dependencies on old ones go to where `moved` says."""
    numbered = tuple(dataclasses.replace(step, s=number) for number, step in enumerate(steps))
    blocks = [
        dataclasses.replace(
            block,
            steps=tuple(
                dataclasses.replace(step, deps=moved[step.deps]) if step.depid == tb else step for step in block.steps
            ),
        )
        for block in program.gpus[gpu].threadblocks
    ]
    blocks[tb] = dataclasses.replace(blocks[tb], steps=numbered)
    return with_gpu(program, gpu, threadblocks=tuple(blocks))


def without_step(program: Program, site: Site) -> Program:
    gpu, tb, at = site
    steps = list(program.gpus[gpu].threadblocks[tb].steps)
    moved = {number: min(number - (number > at), max(len(steps) - 2, 0)) for number in range(len(steps))}
    del steps[at]
    return with_steps(program, gpu, tb, steps, moved)


def with_new_step(program: Program, site: Site, step: Step) -> Program:
    """A step put before the one at a site."""
    gpu, tb, at = site
    steps = list(program.gpus[gpu].threadblocks[tb].steps)
    moved = {number: number + (number >= at) for number in range(len(steps))}
    steps.insert(at, step)
    return with_steps(program, gpu, tb, steps, moved)
