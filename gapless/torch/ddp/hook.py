"""A communication hook that sends each bucket in a mode of its own, with error feedback.

As in PyTorch's own hooks, a state and a function go to DDP together::

    ddp.register_comm_hook(HookState("topk:0.01"), reduce_bucket)

Encoding runs where DDP calls the hook, in the backward pass. All collectives go one at a time, in order, over a thread
of the state, and decoding over another: that is the time line that plans are made for, and what keeps ranks in step
where a mode has two collectives. Annotations are evaluated in this file, since DDP compares those of a hook with its
own types.
"""

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket, Exchange, Message, Method
from gapless.profiles.compressors.two_levels import check_shares, exchange_in_two_levels
from gapless.torch.compression import collective, returned
from gapless.torch.ddp.emulation import Clock, Sending, sleep_until
from gapless.torch.ddp.state import FeedbackState, Scaler, check_header, header, owner_of
from gapless.torch.library import rank_count, torch

__all__ = ["HookState", "Nodes", "Sent", "reduce_bucket"]

_OTHER_BUCKETS = 2
"""Iterations at most in which DDP has other buckets than the plan's."""


@dataclass(frozen=True)
class Sent:
    """One bucket of one step: its mode, bytes before compression, and what each part took; `between_s`: what was
    computed between its collectives, which is a part of `send_s`. `encode_work_s`, `decode_work_s`: processor seconds.
    """

    mode: str
    size_bytes: int
    encode_s: float
    send_s: float
    decode_s: float
    between_s: float
    encode_work_s: float
    decode_work_s: float


@dataclass(frozen=True)
class Nodes:
    """Nodes of so many consecutive `ranks`: the groups of this rank's node, and of those that have its place in others.

    One rank a node is one level, over `group`.
    """

    ranks: int
    group: torch.distributed.ProcessGroup | None
    node: torch.distributed.ProcessGroup | None = None
    across: torch.distributed.ProcessGroup | None = None

    @classmethod
    def of(cls, ranks: int, group: torch.distributed.ProcessGroup | None) -> "Nodes":
        """Called by all ranks. Raises `InputError` where ranks don't fill nodes, or aren't all ranks there are."""
        if ranks == 1:
            return cls(1, group)
        count = rank_count(group)
        if ranks < 1 or count % ranks:
            raise InputError(f"ranks_per_node: must divide the {count} ranks, got {ranks}")
        if count != rank_count(None):
            raise InputError(
                f"ranks_per_node: must be 1 in a group of {count} ranks of {rank_count(None)}, got {ranks}"
            )
        made, own = torch.distributed.new_group, torch.distributed.get_rank()
        nodes = [made(list(range(first, first + ranks))) for first in range(0, count, ranks)]
        places = [made(list(range(place, count, ranks))) for place in range(ranks)]
        return cls(ranks, group, nodes[own // ranks], places[own % ranks])

    def exchange(self, method: Method, bucket: Bucket) -> Exchange:
        """What a rank sends of a bucket."""
        return method.exchange(bucket) if self.ranks == 1 else exchange_in_two_levels(method, bucket, self.ranks)

    def group_of(self, message: Message) -> torch.distributed.ProcessGroup | None:
        """The group that a message is for."""
        return {"ranks": self.group, "node": self.node, "across": self.across}[message.level]


class HookState(FeedbackState):
    """What the hook keeps from step to step: the mode of each bucket, and its error, added to its next gradient.

    `modes`: one for all buckets, or by the ids of a bucket's parameters. A bucket that isn't among them goes plain
    twice, since DDP's first iteration has other buckets (with `static_graph` the second too), then it is an error. An
    error that is fed back belongs to a parameter, with which it goes into other buckets. `group`, `scaler`: as for
    `FeedbackState`. `clock`: what emulated computation goes by. `is_measured`: `sent` has every bucket, in the order in
    which they were sent, until `clear`; ranks wait for each other before each, so that what it takes to send it has no
    waiting in it. `is_counted`: `sent` has them without that wait. `late_s`: by how much a collective was through later
    than an emulated wire says, at most, until `clear`. `ranks_per_node`: how many consecutive ranks are a node;
    gradients stay plain in it, and modes are for what is sent between nodes. Tried on CPUs over gloo. Raises
    `InputError` for an unknown mode, or one that can't be sent in two levels.
    """

    def __init__(
        self,
        modes: str | Mapping[frozenset[int], Sending],
        group: torch.distributed.ProcessGroup | None = None,
        error_feedback: bool = True,
        clock: Clock | None = None,
        is_measured: bool = False,
        is_counted: bool = False,
        scaler: Scaler | None = None,
        ranks_per_node: int = 1,
    ) -> None:
        super().__init__(group, error_feedback, scaler)
        self._nodes = Nodes.of(ranks_per_node, group)
        self._everywhere = isinstance(modes, str)
        self._modes = {} if isinstance(modes, str) else dict(modes)
        self._default = Sending(modes if isinstance(modes, str) else "plain")
        self._methods = {each.mode: method_of(each.mode) for each in (self._default, *self._modes.values())}
        if self._nodes.ranks > 1:
            for mode, method in self._methods.items():
                check_shares(mode, method)
        self.clock, self.is_measured, self.is_counted = clock, is_measured, is_measured or is_counted
        self.sent: list[Sent] = []
        self.late_s = 0.0
        self._is_lossy = any(method.error != "exact" for method in self._methods.values())
        self._network = ThreadPoolExecutor(1, "gapless-network")
        self._decoder = ThreadPoolExecutor(1, "gapless-decoder")
        self._free_s = self._decoded_s = 0.0

    def clear(self) -> None:
        """Forget what was sent, and how late: another step begins."""
        self.sent, self.late_s = [], 0.0

    def reduce(self, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The future of the mean over all ranks of what a bucket's modes makes of its gradient."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if self._is_idle:
            future.set_result(bucket.buffer())
            return future
        begin_s, begin_work_s = time.monotonic(), time.thread_time()
        self._begin(bucket, self._is_lossy)
        key = tuple(id(parameter) for parameter in bucket.parameters())
        sending = self._sending(key)
        given = self._corrected(key, sending, bucket)
        exchange = self._nodes.exchange(self._methods[sending.mode], given)
        message = next(exchange)
        if self.clock is not None and sending.encode_s is not None:
            self.clock.spend(sending.encode_s)
        taken_s = (time.monotonic() - begin_s, time.thread_time() - begin_work_s)
        job = _Job(key, sending, given, exchange, bucket.buffer().nbytes, *taken_s)
        ready_s = time.monotonic() if self.clock is None else self.clock.at_s
        self._network.submit(self._in_turn, job, message, ready_s, future)
        return future

    # -- saved and loaded ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, object]:
        """This rank's errors, factors and numbers of steps, in plain values and tensors, for `load_state_dict`.

        Every rank has its own. Raises `InputError` before the second step, when DDP has yet to make its buckets.
        """
        ddp = self._owner()
        if 0 < self._memory.steps + self._memory.is_over < _OTHER_BUCKETS and not ddp.find_unused_parameters:
            raise InputError("state: can be saved from the second step on, once DDP's buckets are final; save later")
        data = self._memory.data({id(parameter): name for name, parameter in ddp.module.named_parameters()})
        modes = [self._sending(key).mode for key in self._memory.buckets]
        return {**header(self._kind, self.group), "modes": modes, **data}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on as the run in which `state_dict` gave this; called by all ranks, before the first step.

        DDP gets the buckets of that run. Raises `InputError` for another rank, number of ranks, model or modes.
        """
        check_header(data, self._kind, self.group)
        ddp = self._owner()
        parameters = dict(ddp.module.named_parameters())
        memory = self._memory.loaded(data, parameters)
        for key, mode in zip(memory.buckets, data["modes"], strict=True):
            if self._sending(key).mode != mode:
                rule = f"state: mode of a bucket must be {mode!r} as in what was saved, got {self._sending(key).mode!r}"
                raise InputError(f"{rule}; load what a run by this plan saved")
        if memory.buckets:
            self._rebuild(ddp, data["buckets"])
        self._memory = memory

    @property
    def _kind(self) -> str:
        """What errors belong to: parameters, or their shares."""
        return "buckets" if self._nodes.ranks == 1 else f"buckets in nodes of {self._nodes.ranks}"

    def _owner(self) -> torch.nn.parallel.DistributedDataParallel:
        ddp = owner_of(self)
        if ddp is None:
            raise InputError("state: must be registered first; ddp.register_comm_hook(state, reduce_bucket)")
        return ddp

    def _sending(self, key: tuple[int, ...]) -> Sending:
        return self._modes.get(frozenset(key), self._default)

    def _corrected(self, key: tuple[int, ...], sending: Sending, bucket: torch.distributed.GradBucket) -> Bucket:
        """A copy of the gradient, with what was not sent before."""
        kept = self._memory.of(key, [each.numel() for each in bucket.gradients()])
        if kept.step >= _OTHER_BUCKETS and not self._everywhere and frozenset(key) not in self._modes:
            rule = f"bucket {bucket.index()}: must be one of the plan's from the third iteration on"
            raise InputError(
                f"{rule}; gradients become ready in another order than the plan's: measure the model again"
            )
        shapes = [tuple(each.shape) for each in bucket.gradients()]
        is_lossy = self._methods[sending.mode].error != "exact"
        return self._given(bucket.buffer(), shapes, bucket.index(), kept, is_lossy)

    # -- on the network's thread, then on the decoder's ----------------------------------------------------------------

    def _in_turn(
        self, job: "_Job", message: Message, ready_s: float, future: torch.futures.Future[torch.Tensor]
    ) -> None:
        try:
            received = self._exchanged(job, message, ready_s)
        except Exception as error:
            future.set_exception(error)
            return
        self._decoder.submit(self._decoded, job, received, future)

    def _exchanged(self, job: "_Job", message: Message, ready_s: float) -> torch.Tensor:
        """What arrives last. An emulated wire is taken once all ranks have something for it and it is free."""
        emulated_s = job.sending.send_s
        if self.is_measured or (emulated_s is not None and self.clock is None):
            ready_s = self._latest(ready_s)  # an emulated clock is the same in all ranks
        begin_s = time.monotonic() if emulated_s is None else max(ready_s, self._free_s)
        received = collective(message, self._nodes.group_of(message))
        while not message.is_last:
            arrived_s = time.monotonic()
            message = job.exchange.send(received)
            job.between_s += time.monotonic() - arrived_s
            received = collective(message, self._nodes.group_of(message))
        lengths = tuple(math.prod(shape) for shape in job.given.shapes)
        self._keep(job.key, lengths, job.given, self._methods[job.sending.mode])
        if emulated_s is not None:
            self._free_s = begin_s + emulated_s
            self.late_s = max(self.late_s, time.monotonic() - self._free_s)
            sleep_until(self._free_s)
        job.sent_s = time.monotonic() if emulated_s is None else self._free_s
        job.send_s = job.sent_s - begin_s
        return received

    def _latest(self, ready_s: float) -> float:
        """When the last rank had something to send: ranks of one machine have one clock."""
        if rank_count(self.group) == 1:
            return ready_s
        latest_s = torch.tensor(ready_s, dtype=torch.float64)
        torch.distributed.all_reduce(latest_s, torch.distributed.ReduceOp.MAX, group=self.group)
        return float(latest_s)

    def _decoded(self, job: "_Job", received: torch.Tensor, future: torch.futures.Future[torch.Tensor]) -> None:
        try:
            begin_s, begin_work_s = time.monotonic(), time.thread_time()
            mean = returned(job.exchange, received)
            if self._is_lossy:
                self._memory.look(mean)
            emulated_s = job.sending.decode_s
            if self.clock is not None and emulated_s is not None:
                self._decoded_s = max(self._decoded_s, job.sent_s) + emulated_s
                sleep_until(self._decoded_s)
            decode_s = time.monotonic() - begin_s
            if self.is_counted:
                times = (job.encode_s, job.send_s, decode_s, job.between_s)
                works = (job.encode_work_s, time.thread_time() - begin_work_s)
                self.sent.append(Sent(job.sending.mode, job.size_bytes, *times, *works))
        except Exception as error:
            future.set_exception(error)
            return
        future.set_result(mean)


@dataclass
class _Job:
    """A bucket under way."""

    key: tuple[int, ...]
    sending: Sending
    given: Bucket
    exchange: Exchange
    size_bytes: int
    encode_s: float
    encode_work_s: float
    send_s: float = 0.0
    sent_s: float = 0.0
    between_s: float = 0.0


def reduce_bucket(state: HookState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean over all ranks of the bucket's gradients, in the bucket's mode."""
    return state.reduce(bucket)
