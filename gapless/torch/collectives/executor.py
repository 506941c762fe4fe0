"""A plan as a collective function: every rank of a process group sends and takes in what its steps say.

Messages between two ranks go one after the other, in the order of the plan; those of different pairs and directions at
the same time, by a thread each. Lower ranks send to higher ones in one process group and the others in a second one: a
pair of gloo that sends and receives at once does both at half the rate.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

from gapless.checker import check
from gapless.errors import InputError, RunError
from gapless.io.formats.collective_file import collective_of
from gapless.io.plan import read_plan
from gapless.ir.collective import Collective
from gapless.system import known_system
from gapless.torch.collectives.steps import Step, steps_of
from gapless.torch.devices import device_of
from gapless.torch.library import rank_count, torch
from gapless.torch.processes import error_line

__all__ = [
    "WAIT_S", "AllGather", "AllGatherV", "AllReduce", "AllToAll", "AllToAllV", "Broadcast", "Channels", "Gather",
    "PlannedCollective", "Reduce", "ReduceScatter", "Scatter", "SendRecv", "planned",
]  # fmt: skip

WAIT_S = 1800.0
"""How long torch's own groups wait, too."""

_AHEAD = 3
"""Messages of a queue that are under way besides the one that is waited for: who sends never waits to be expected."""


class Channels:
    """Two process groups of the ranks of `group`, None for the default one; made by all of its ranks at once.

    One is for messages from lower to higher ranks, the other for those back. Plans that are never called at the same
    time may share them. `wait_s`: the longest that a rank waits for a message of another.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None, wait_s: float = WAIT_S) -> None:
        distributed, wait = torch.distributed, timedelta(seconds=wait_s)
        self.ranks = distributed.get_process_group_ranks(group)
        self.groups = [
            distributed.new_group(
                self.ranks, wait, distributed.get_backend(group), use_local_synchronization=group is not None
            )
            for _ in range(2)
        ]


class PlannedCollective:
    """A collective of this process's rank, by the steps of a plan; made once, and called, by all ranks of a group.

    `collective`: what it does. `steps`: those of all ranks. `group`: the process group, None for the default one.
    `wait_s`: the longest that a rank waits for a message of another. `channels`: those of the group, if there are some.
    Raises `InputError` where the group has another number of ranks than the plan.
    """

    def __init__(
        self, collective: Collective, steps: Sequence[Sequence[Step]],
        group: torch.distributed.ProcessGroup | None = None, wait_s: float = WAIT_S, channels: Channels | None = None,
    ) -> None:  # fmt: skip
        if rank_count(group) != collective.rank_count:
            raise InputError(f"plan: is for {collective.rank_count} ranks, the process group has {rank_count(group)}")
        self.collective = collective
        self.rank = torch.distributed.get_rank(group)
        self.sent_bytes = 0
        self._steps = steps[self.rank]
        channels = channels or Channels(group, wait_s)
        self._ranks, self._groups = channels.ranks, channels.groups
        queues = defaultdict(list)
        for place, step in enumerate(self._steps):
            queues[step.sends, step.peer].append(place)
        self._queues = [sorted(places, key=lambda place: self._steps[place].message) for places in queues.values()]
        self._threads = ThreadPoolExecutor(max(len(self._queues), 1), thread_name_prefix="gapless-collective")

    def __call__(self, given: torch.Tensor, output: torch.Tensor | None = None) -> torch.Tensor:
        """The collective of flat buffers: `given` in, `output` out, which may be the same memory, or is made.

        A rank that gives (or gets) nothing has a buffer of length 0; if it does neither, `given` is as long as a chunk.
        Where chunks are of unlike sizes, buffers have the bytes that the plan says. Raises `InputError` for a buffer
        that its chunks don't divide, or of other bytes, and `RunError` where a message fails.
        """
        given = given.detach()
        if self.collective.chunk_sizes is not None:
            return self._of_bytes(given, output, self.collective.chunk_sizes)
        inputs, outputs = (buffers[self.rank] for buffers in (self.collective.inputs, self.collective.outputs))
        length = self._chunk_length(given, output, len(inputs), len(outputs))
        if output is None:
            output = given.new_empty(length * len(outputs))
        self._carry_out(given, output.detach(), [length] * self.collective.chunk_count)
        return output.detach()

    def _of_bytes(self, given: torch.Tensor, output: torch.Tensor | None, sizes: Sequence[int]) -> torch.Tensor:
        """The collective of buffers whose chunks are of unlike sizes, in bytes."""
        known = (("input", given, self.collective.inputs), ("output", output, self.collective.outputs))
        for title, buffer, buffers in known:
            size = sum(sizes[chunk] for chunk in buffers[self.rank])
            if buffer is None:
                if size % given.element_size():
                    rule = f"must be given where its {size} bytes are no whole numbers"
                    raise InputError(f"output: {rule} of the input's type, got None")
                output = given.new_empty(size // given.element_size())
            elif buffer.dim() != 1 or not buffer.is_contiguous() or buffer.nbytes != size:
                shape = f"{buffer.nbytes} bytes of shape {tuple(buffer.shape)}"
                raise InputError(f"{title}: must be flat and of {size} bytes on rank {self.rank}, got {shape}")
        assert output is not None
        output = output.detach()
        self._carry_out(given.view(torch.uint8), output.view(torch.uint8), sizes)
        return output

    def _carry_out(self, given: torch.Tensor, output: torch.Tensor, lengths: Sequence[int]) -> None:
        """One call; `lengths`: of each chunk."""
        inputs, outputs = (buffers[self.rank] for buffers in (self.collective.inputs, self.collective.outputs))
        parts = given[: sum(lengths[chunk] for chunk in inputs)].split([lengths[chunk] for chunk in inputs])
        held = dict(zip(inputs, parts, strict=True)) if inputs else {}
        call = _Call(self._steps, held, given.new_empty(0), lengths)
        for future in [self._threads.submit(self._work, call, queue) for queue in self._queues]:
            future.exception()
        if call.error is not None:
            raise call.error
        self.sent_bytes = call.sent_bytes
        result = [call.held[chunk].clone() for chunk in outputs]  # in place, a chunk may lie where another goes
        place = 0
        for part in result:
            output[place : place + len(part)] = part
            place += len(part)

    def _chunk_length(self, given: torch.Tensor, output: torch.Tensor | None, inputs: int, outputs: int) -> int:
        known = [("input", given, inputs)] if inputs or not outputs else []
        known += [("output", output, outputs)] if output is not None and outputs else []
        if not known:
            raise InputError("output: must be given on a rank that has no input")
        lengths = set()
        for title, buffer, chunks in known:
            if buffer.dim() != 1 or buffer.numel() % max(chunks, 1):
                shape = tuple(buffer.shape)
                raise InputError(f"{title}: must be flat and divisible into {chunks} chunks, got shape {shape}")
            lengths.add(buffer.numel() // max(chunks, 1))
        if output is not None and (output.dtype, output.device) != (given.dtype, given.device):
            found = f"{output.dtype} on {output.device}, the input {given.dtype} on {given.device}"
            raise InputError(f"output: must be of the input's type and device, is {found}")
        if len(lengths) > 1:
            raise InputError(f"output: must have chunks as long as the input's, got {sorted(lengths)}")
        return int(lengths.pop())

    def _work(self, call: _Call, places: list[int]) -> None:
        """The messages to, or from, one rank."""
        device_of(call.device).make_current()
        peer = self._steps[places[0]].peer
        open_ = deque[tuple[int, torch.Tensor, torch.distributed.Work]]()
        try:
            for place in places:
                step = self._steps[place]
                group = self._groups[(self.rank < peer) == step.sends]
                message = call.message(place) if step.sends else call.room(place)
                start = torch.distributed.isend if step.sends else torch.distributed.irecv
                open_.append((place, message, start(message, self._ranks[peer], group)))
                if len(open_) > _AHEAD:
                    self._finish(call, *open_.popleft())
            while open_:
                self._finish(call, *open_.popleft())
        except RuntimeError as error:  # torch's: the caller's thread raises it, the other threads end
            call.fail(RunError(f"message to or from rank {peer}: {error_line(error)}"))
        except Exception as error:
            call.fail(error)

    def _finish(self, call: _Call, place: int, message: torch.Tensor, work: torch.distributed.Work) -> None:
        """Wait for a message to have gone, or to be there."""
        work.wait()
        if not self._steps[place].sends:
            call.receive(place, message)


class _Call:
    """One call: the chunks that the rank holds, and which steps are over. Threads share it under one lock.

    What is held is never written to: a sum, or what arrives, takes its place. So a message that waits to be sent keeps
    what the chunk was in the plan when it was sent.
    """

    def __init__(
        self, steps: Sequence[Step], held: dict[int, torch.Tensor], empty: torch.Tensor, lengths: Sequence[int]
    ) -> None:
        self.held = held
        self.device = empty.device
        self.error: Exception | None = None
        self.sent_bytes = 0
        self._steps, self._empty, self._lengths = steps, empty, lengths
        self._news = threading.Condition()
        self._left = [len(step.needs) for step in steps]
        self._received: dict[int, torch.Tensor] = {}
        self._after: dict[int, list[int]] = defaultdict(list)
        for place, step in enumerate(steps):
            for need in step.needs:
                self._after[need].append(place)

    def message(self, place: int) -> torch.Tensor:
        """What a step sends, once it may."""
        step = self._steps[place]
        with self._news:
            self._news.wait_for(lambda: self._left[place] == 0 or self.error is not None)
            if self.error is not None:
                raise self.error
            parts = [self.held[chunk] for chunk in step.chunks]
            self._end(place)
        if not parts:
            return self.room(place).zero_()
        message = parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)
        with self._news:
            self.sent_bytes += message.numel() * message.element_size()
        return message

    def room(self, place: int) -> torch.Tensor:
        """Memory for what a step receives; a token is one number."""
        return self._empty.new_empty(max(sum(self._lengths[chunk] for chunk in self._steps[place].chunks), 1))

    def receive(self, place: int, message: torch.Tensor) -> None:
        """What a step has received, which is taken in once it may be."""
        with self._news:
            self._received[place] = message
            if self._left[place] == 0:
                self._end(place)

    def fail(self, error: Exception) -> None:
        """Let all threads end; the first error is kept."""
        with self._news:
            self.error = self.error or error
            self._news.notify_all()

    def _end(self, place: int) -> None:
        """A step is over, and with it perhaps others that have received what they wait to take in."""
        ended = [place]
        while ended:
            place = ended.pop()
            if place in self._received:
                self._take_in(self._steps[place], self._received.pop(place))
            for later in self._after[place]:
                self._left[later] -= 1
                if self._left[later] == 0 and later in self._received:
                    ended.append(later)
        self._news.notify_all()

    def _take_in(self, step: Step, message: torch.Tensor) -> None:
        lengths = [self._lengths[chunk] for chunk in step.chunks]
        for chunk, part in zip(step.chunks, message.split(lengths) if lengths else (), strict=True):
            is_sum = step.reduces and chunk in self.held
            self.held[chunk] = self.held[chunk] + part if is_sum else part


def planned(
    path: str | Path,
    tokens: bool = True,
    group: torch.distributed.ProcessGroup | None = None,
    wait_s: float = WAIT_S,
    collective: str | None = None,
    anyway: bool = False,
    channels: Channels | None = None,
) -> PlannedCollective:
    """The collective of a plan file. `tokens`: whether ranks take what they share (a NIC) in turn, as the plan does.

    `group`, `wait_s`, `channels`: as for `PlannedCollective`. `collective`: the name that it must have, if any.
    `anyway`: also where the group's own library is predicted to be faster on the plan's machine. Raises `InputError`
    for a file that is no valid plan of that collective, or of another number of ranks, and for a slower one.
    """
    plan = read_plan(path)
    if "collective" not in plan.problem:
        raise InputError(f"{path}: must be a plan of a collective, got one of {plan.system}")
    report = check(plan.schedule)
    if not report.valid:
        raise InputError(f"{path}: {report.summary()}")
    found = collective_of(plan.problem, str(path))
    if collective not in (None, found.name):
        raise InputError(f"{path}: must be a plan of {collective}, got one of {found.name}")
    if not anyway and rank_count(group) == found.rank_count:
        backend = torch.distributed.get_backend(group)
        system = known_system(plan.system)
        faster = "" if system is None else system.faster_library(plan, report.makespan_s, backend)
        if faster:
            raise InputError(f"{path}: {faster}; call {backend} itself, or run the plan all the same with anyway=True")
    return PlannedCollective(found, steps_of(plan.schedule, tokens), group, wait_s, channels)


AllGather = partial(planned, collective="allgather")
AllGatherV = partial(planned, collective="allgatherv")
AllReduce = partial(planned, collective="allreduce")
AllToAll = partial(planned, collective="alltoall")
AllToAllV = partial(planned, collective="alltoallv")
Broadcast = partial(planned, collective="broadcast")
Gather = partial(planned, collective="gather")
Reduce = partial(planned, collective="reduce")
ReduceScatter = partial(planned, collective="reducescatter")
Scatter = partial(planned, collective="scatter")
SendRecv = partial(planned, collective="sendrecv")
