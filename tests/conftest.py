"""What all tests share: the two tiers (`--thorough`), random valid schedules, and PyTorch on one thread."""

from __future__ import annotations

import gc
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from examples import LEAST, MOST
from hypothesis import settings
from left_out import LeftOut

from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

INITIAL, TENSORS = 3, 7


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="also tests that take long; random examples, and all of them"
    )
    parser.addoption("--only-extras", action="store_true", help="only tests that need an extra, which a newcomer lacks")


def pytest_configure(config: pytest.Config) -> None:
    """Without `--thorough` all examples are the same in every run; with it, new ones are searched for."""
    os.environ["GAPLESS_CACHE"] = ""  # no test reads or leaves what the user's folder keeps
    line = (
        "thorough(*words, but=()): with --thorough only; of a test's cases those with one of `words`, or none of `but`"
    )
    config.addinivalue_line("markers", line)
    config.addinivalue_line("markers", "extra(name): where this extra of pyproject.toml is installed")
    config.pluginmanager.register(LeftOut(config), "left out")
    settings.register_profile("quick", max_examples=LEAST, derandomize=True, deadline=None, database=None)
    settings.register_profile("thorough", max_examples=MOST, deadline=None, database=None, print_blob=True)
    settings.load_profile("thorough" if config.getoption("--thorough") else "quick")


def pytest_collection_finish() -> None:
    """What collecting leaves stays for good: a collection of garbage that looks through it takes half a second."""
    gc.collect()
    gc.freeze()


def _random_topology(chance: random.Random) -> Topology:
    devices = chance.randint(1, 3)
    names = tuple(f"port{number}" for number in range(chance.randint(0, 2)))
    return Topology(
        name="random",
        node_of_device=(0,) * devices,
        links=tuple(
            Link(
                source,
                target,
                alpha_s=chance.choice([0.0, 1.0]),
                beta_s_per_byte=chance.choice([0.0, 0.5, 1.0]),
                resources=tuple(port for port in range(len(names)) if chance.random() < 0.5),
            )
            for source in range(devices)
            for target in range(devices)
            if source != target
        ),
        resources=names,
        engines=tuple((device, f"e{k}") for device in range(devices) for k in range(chance.randint(1, 2))),
    )


def _random_op(chance: random.Random, number: int, tracked: bool) -> Op:
    output = INITIAL + number
    inputs = tuple(chance.sample(range(output), chance.randint(1, 2)))
    outputs = chance.choice([(output,), (output,), (output,), (output, inputs[0]), inputs[:1]])
    return Op(
        name=f"op{number}",
        inputs=inputs,
        outputs=outputs,
        implementations=(
            Implementation(chance.choice([0.0, 1.0, 2.0]), workspace_bytes=chance.choice([0, 5])),
            Implementation(1.0, inputs=tuple(chance.sample(range(output), 1))),
            Implementation(0.0, overwrites=inputs[-1:]),
        ),
        adds=10 + number if tracked and chance.random() < 0.5 else None,
        reduces=tracked and chance.random() < 0.3,
        updates=inputs[:1] if inputs[0] in outputs and chance.random() < 0.6 else (),
    )


def _random_graph(chance: random.Random, devices: int) -> Graph:
    tracked = chance.random() < 0.6
    copies = [(tensor, device) for tensor in range(INITIAL) for device in range(devices) if chance.random() < 0.8]
    return Graph(
        size_bytes=np.array([chance.randint(0, 3) for _ in range(TENSORS)], dtype=np.int64),
        ops=tuple(_random_op(chance, number, tracked) for number in range(TENSORS - INITIAL)),
        initial=Placement.of(copies, [1 << device for _, device in copies] if tracked else None),
    )


class _Draft:
    """A schedule that grows by one event at a time, each valid after the ones before it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topology = _random_topology(chance)
        self.graph = _random_graph(chance, self.topology.device_count)
        initial = self.graph.initial
        copies = list(zip(initial.tensors.tolist(), initial.devices.tolist(), strict=True))
        self.held = dict(zip(copies, initial.contributions or (0,) * len(copies), strict=True))
        self.clock: defaultdict[object, float] = defaultdict(float)
        self.events: list[Event] = []

    def try_op(self) -> None:
        """Adds a random op where its inputs are, unless they are not or it would count something twice."""
        number = self.chance.randrange(len(self.graph.ops))
        op = self.graph.ops[number]
        choice = self.chance.randrange(len(op.implementations))
        place = self.chance.randrange(len(self.topology.engines))
        device = self.topology.engines[place][0]
        reads = [(tensor, device) for tensor in op.reads(choice)]
        if any(copy not in self.held for copy in reads):
            return
        sets = [self.held[copy] for copy in reads]
        union, added = 0, 0 if op.adds is None else 1 << op.adds
        for part in sets:
            if op.reduces and union & part:
                return
            union |= part
        changed = [(tensor, device) for tensor in op.updates]
        if added & (union | max((self.held.get(copy, 0) for copy in changed), default=0)):
            return
        way = op.implementations[choice]
        writes = [(tensor, device) for tensor in op.outputs]
        kills = [(tensor, device) for tensor in way.overwrites]
        for copy in kills:
            del self.held[copy]
        self.held |= {copy: (self.held.get(copy, 0) if copy in changed else union) | added for copy in writes}
        event = Event(EventKind.COMPUTE, 0, 0, place, op=number, implementation=choice)
        self.add(event, way.duration_s, reads, writes, [("engine", place)])

    def try_transfer(self) -> None:
        """Adds a random transfer or reduction, unless it would count a contribution twice or lose one."""
        if not self.topology.links:
            return
        place = self.chance.randrange(len(self.topology.links))
        link = self.topology.links[place]
        there = sorted(tensor for tensor, device in self.held if device == link.source)
        if not there:
            return
        moves = tuple(self.chance.sample(there, min(len(there), self.chance.randint(1, 2))))
        reduces = self.chance.random() < 0.3
        sources = [(tensor, link.source) for tensor in moves]
        targets = [(tensor, link.target) for tensor in moves]
        for source, target in zip(sources, targets, strict=True):
            sent, old = self.held[source], self.held.get(target)
            if (reduces and (old is None or old & sent)) or (not reduces and (old or 0) & ~sent):
                return
        for source, target in zip(sources, targets, strict=True):
            self.held[target] = self.held[source] | (self.held[target] if reduces else 0)
        least_s = link.duration_s(int(self.graph.size_bytes[list(moves)].sum()))
        event = Event(EventKind.TRANSFER, 0, 0, place, moves=moves, reduces=reduces)
        reads = sources + targets if reduces else sources
        self.add(event, least_s, reads, targets, [("link", place), *(("port", port) for port in link.resources)])

    def add(
        self,
        event: Event,
        least_s: float,
        reads: list[tuple[int, int]],
        writes: list[tuple[int, int]],
        resources: list[tuple[str, int]],
    ) -> None:
        """Times the event after all that it must wait for, sometimes later and longer than it must be."""
        chance, clock = self.chance, self.clock
        frees = []
        if self.held and chance.random() < 0.2:
            frees = [chance.choice(sorted(self.held))]
            del self.held[frees[0]]
        taken_s = least_s + chance.choice([0.0, 0.0, 0.5])
        waits = [clock[resource] for resource in resources] + [clock["written", copy] for copy in reads]
        op = self.graph.ops[event.op].implementations[event.implementation] if event.op >= 0 else None
        kills = [(tensor, self.topology.engines[event.place][0]) for tensor in op.overwrites] if op else []
        waits += [clock["used", copy] for copy in (*writes, *kills)]
        waits += [clock["used", copy] - taken_s for copy in frees]
        # What takes no time comes after the frees of its instant, so those must not share it.
        waits += [clock["used at once", copy] for copy in frees]
        start_s = max([0.0, *waits]) + chance.choice([0.0, 0.0, 1.0])
        end_s = start_s + taken_s
        for resource in resources:
            clock[resource] = end_s
        for copy in writes:
            clock["written", copy] = end_s
        for copy in (*reads, *writes, *frees):
            clock["used", copy] = max(clock["used", copy], end_s)
            if least_s == 0:
                clock["used at once", copy] = max(clock["used at once", copy], end_s)
        self.events.append(replace(event, start_s=start_s, end_s=end_s, frees=tuple(frees)))

    def schedule(self) -> Schedule:
        """The draft as a schedule that requires what it leaves behind."""
        copies = sorted(self.held)
        tracked = self.graph.tracks_contributions
        required = Placement.of(copies, [self.held[copy] for copy in copies] if tracked else None)
        graph = replace(self.graph, required=required)
        return schedule_from_events(graph, self.topology, self.events)


def _random_schedule(chance: random.Random) -> Schedule:
    draft = _Draft(chance)
    for _ in range(chance.choice([5, 20, 50])):
        if chance.random() < 0.5:
            draft.try_op()
        else:
            draft.try_transfer()
    return draft.schedule()


@pytest.fixture(scope="session")
def random_schedule() -> Callable[[random.Random], Schedule]:
    """Makes a random small schedule that replays clean: parallel engines and links, ties, events of no duration,
    several tensors a transfer, reductions, updates, in-place ops, workspace and frees.
    """
    return _random_schedule


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    import torch

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch as in the processes of `gloo_ranks`, since the number of threads can decide how a product rounds."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
