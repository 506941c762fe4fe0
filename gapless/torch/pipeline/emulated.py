"""A plan's step on ranks that wait instead of computing: what order, messages and PyTorch's runtime make of its times.

Each op sleeps until its planned time has gone by. Messages are really sent, over gloo; their first numbers say when
they are there, so that one that is sooner waits: a link carries one message at a time, each as long as the plan says.
All processes are of one machine and share its clock. Needs the extra `torch`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed import P2POp
from torch.distributed.pipelining import PipelineStage

from gapless.io.formats.torch_pipeline import FORMS, ActionOrder, write_torch_pipeline
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.pipeline.memory.offload import Offload, WallClock, op_name, rows_on
from gapless.torch.pipeline.run import spans_s, timed
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks

__all__ = ["MOST_MESSAGE_BYTES", "EmulatedRun", "EmulatedTask", "emulate", "prepared"]

MOST_MESSAGE_BYTES = 2**16
"""Larger messages are sent as so many bytes where the time of links is emulated."""
_STAMP_BYTES = 8
_CLOCK = WallClock()

Row = tuple[int, str, int, float]
"""Stage, letter, micro-batch, seconds."""


@dataclass(frozen=True)
class EmulatedTask:
    """What all ranks are to do.

    `op_s`: of all actions. `hop_s`: of the messages that they make; none where messages take what they take.
    `boundary_bytes`: of those after each stage but the last. `steps`: that are timed, after one that isn't.
    `copies`: of all ranks' ops, where what micro-batches keep travels to hosts; `kept`: rows of stage, letter and
    micro-batch, the bytes that an op takes when it begins and leaves when it ends, and those that travel. Every copy is
    of so many bytes over `byte_scale`, at `offload_s_per_byte`.
    """

    rank_of_stage: tuple[int, ...]
    micro_batches: int
    op_s: tuple[Row, ...]
    hop_s: tuple[Row, ...]
    boundary_bytes: tuple[int, ...]
    steps: int
    form: str
    wait_s: float
    copies: tuple[tuple[str, str, str], ...] = ()
    kept: tuple[tuple[int, str, int, int, int, int], ...] = ()
    byte_scale: int = 1
    offload_s_per_byte: float = 0.0


@dataclass(frozen=True)
class EmulatedRun:
    """`step_s[k]`: from the first rank's start to the last one's end, of each timed step. `overhead_s`: of each op of
    them, what it took more than planned since it could begin: its rank free, its message there. `kept_bytes[r]`: the
    most that rank r kept of micro-batches at once.
    """

    step_s: tuple[float, ...]
    overhead_s: tuple[float, ...]
    kept_bytes: tuple[int, ...] = ()


class _Kept:
    """What a rank keeps of micro-batches, in the plan's bytes, and its copies."""

    def __init__(self, task: EmulatedTask, rank: int) -> None:
        named = {op_name(*row[:3]): row[3:] for row in task.kept if task.rank_of_stage[row[0]] == rank}
        self._bytes, self._scale, self._live, self.peak_bytes = named, task.byte_scale, 0, 0
        rows = rows_on(task.copies, task.rank_of_stage, rank)
        self._offload = Offload(rows, task.offload_s_per_byte, self) if rows else None

    def begin(self) -> None:
        """A step."""
        if self._offload is not None:
            self._offload.begin()

    @contextmanager
    def op(self, stage: int, kind: str, micro_batch: int) -> Iterator[float]:
        """Around an op, that waits for its copies; when they are over."""
        name, forward = op_name(stage, kind, micro_batch), op_name(stage, "F", micro_batch)
        takes, leaves, moves = self._bytes.get(name, (0, 0, 0))
        with nullcontext(0.0) if self._offload is None else self._offload.op(name, forward) as copied_s:
            self._add(takes)
            yield copied_s
            self._add(-leaves)
            if self._offload is not None and name in self._offload.travels:
                self._offload.made(name, [torch.empty(moves // self._scale, dtype=torch.uint8).untyped_storage()])

    def gone(self, forward: str, _: Sequence[Any]) -> None:
        """See `Held`."""
        self._add(-self._bytes[forward][2])

    def returned(self, forward: str, _: Sequence[Any]) -> None:
        """See `Held`."""
        self._add(self._bytes[forward][2])

    def _add(self, size_bytes: int) -> None:
        """No two do so at once: copies leave and return between ops."""
        self._live += size_bytes
        self.peak_bytes = max(self.peak_bytes, self._live)


class _Player:
    """A rank's clock: when it is free, and when its links are."""

    def __init__(self, task: EmulatedTask, rank: int) -> None:
        self.op_s = {(stage, kind, m): seconds for stage, kind, m, seconds in task.op_s}
        self.hop_s = {(stage, kind, m): seconds for stage, kind, m, seconds in task.hop_s}
        self.ranks = task.rank_of_stage
        self.kept = _Kept(task, rank)
        self.overhead_s: list[float] = []
        self._link_free_s: dict[int, float] = {}
        self._free_s = 0.0

    def begin(self) -> None:
        """A step."""
        self.kept.begin()
        self._link_free_s, self._free_s = {}, _CLOCK.now_s()

    def run(self, action: tuple[int, str, int], arrived_s: float) -> float:
        """Wait for a message and for copies, then as long as the action takes; when it is over."""
        _CLOCK.wait_until(arrived_s)
        with self.kept.op(*action) as copied_s:
            could_s = max(self._free_s, arrived_s, copied_s)
            _CLOCK.wait_until(_CLOCK.now_s() + self.op_s[action])
            end_s = _CLOCK.now_s()
        self.overhead_s.append(end_s - could_s - self.op_s[action])
        self._free_s = end_s
        return end_s

    def arrival_s(self, action: tuple[int, str, int], target: int) -> float:
        """When a message that leaves now is there."""
        start_s = max(_CLOCK.now_s(), self._link_free_s.get(target, 0.0))
        self._link_free_s[target] = start_s + self.hop_s.get(action, 0.0)
        return self._link_free_s[target]


class _EmulatedStage(PipelineStage):  # type: ignore[misc,unused-ignore]
    """Sleeps where the runtime has it compute; `out_bytes`: of what it sends on."""

    def __init__(self, *stage: Any, player: _Player, out_bytes: int, **options: Any) -> None:
        super().__init__(*stage, **options)
        self.player, self.out_bytes = player, out_bytes

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Tensor:
        """Sleep, and make what is sent."""
        arrived_s = 0.0 if self.is_first else _stamp_of(self.args_recv_info[fwd_chunk_id])
        output = _message(self.out_bytes)
        _stamp(output, self.player.run((self.stage_index, "F", fwd_chunk_id), arrived_s))
        self.fwd_cache[fwd_chunk_id] = (output,), ()
        return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:  # fmt: skip
        """Sleep, and make the gradient that is sent."""
        arrived_s = 0.0 if self.is_last else _stamp_of(self.grad_recv_info[bwd_chunk_id])
        gradients = () if self.is_first else (torch.empty_like(self.args_recv_info[bwd_chunk_id][0].buffer),)
        end_s = self.player.run((self.stage_index, "B" if full_backward else "I", bwd_chunk_id), arrived_s)
        for gradient in gradients:
            _stamp(gradient, end_s)
        del self.fwd_cache[bwd_chunk_id]
        self.bwd_cache[bwd_chunk_id] = gradients

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Sleep."""
        self.player.run((self.stage_index, "W", bwd_chunk_id), 0.0)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """With the time when the activation is there."""
        ops: list[P2POp] = super().get_fwd_send_ops(fwd_chunk_id)
        return self._sent(ops, "F", fwd_chunk_id, 1)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """With the time when the gradient is there."""
        ops: list[P2POp] = super().get_bwd_send_ops(bwd_chunk_id)
        return self._sent(ops, "B", bwd_chunk_id, -1)

    def _sent(self, ops: list[P2POp], kind: str, micro_batch: int, towards: int) -> list[P2POp]:
        for op in ops:
            target = self.player.ranks[self.stage_index + towards]
            _stamp(op.tensor, self.player.arrival_s((self.stage_index, kind, micro_batch), target))
        return ops


class _Shape(Module):  # type: ignore[misc,unused-ignore]
    """What PyTorch asks for the shapes of messages; it is never run."""

    def __init__(self, out_bytes: int) -> None:
        super().__init__()
        self.out_bytes, self.weight = out_bytes, torch.nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = (inputs * self.weight).sum().expand(1, self.out_bytes // 4).contiguous()
        return made


def _message(size_bytes: int) -> Tensor:
    return torch.zeros(1, size_bytes // 4)


def _stamp(message: Tensor, at_s: float) -> None:
    message.detach().view(-1)[: _STAMP_BYTES // 4].view(torch.float64)[0] = at_s


def _stamp_of(buffers: Sequence[Any]) -> float:
    return float(buffers[0].buffer.detach().view(-1)[: _STAMP_BYTES // 4].view(torch.float64)[0])


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, EmulatedTask)
    return Program(max(task.rank_of_stage) + 1, task.wait_s, lambda rank: _run_rank(rank, task, folder))


def _run_rank(rank: int, task: EmulatedTask, folder: Path) -> dict[str, object]:
    """When each timed step of this rank begins and ends, what its ops took more than planned, and what it kept."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    player, count = _Player(task, rank), len(task.rank_of_stage)
    sizes = [*task.boundary_bytes, _STAMP_BYTES]
    stages = [
        _EmulatedStage(_Shape(sizes[stage]), stage, count, torch.device("cpu"), player=player, out_bytes=sizes[stage])
        for stage, place in enumerate(task.rank_of_stage) if place == rank
    ]  # fmt: skip
    runtime = _PipelineScheduleRuntime(stages, task.micro_batches, loss_fn=lambda output, target: output.sum())
    runtime._load_csv(str(folder / "schedule.csv"), format=FORMS[task.form])  # noqa: SLF001
    batch = torch.zeros(task.micro_batches, 2)
    inputs = (batch,) if any(stage.is_first for stage in stages) else ()
    target = {"target": batch} if any(stage.is_last for stage in stages) else {}

    def step() -> None:
        player.begin()
        runtime.step(*inputs, **target, return_outputs=False)

    timed(step, 1)  # in which stages agree on shapes
    player.overhead_s.clear()
    spans = timed(step, task.steps)
    return {"spans": spans, "overhead_s": player.overhead_s, "kept_bytes": player.kept.peak_bytes}


def emulate(order: ActionOrder, task: EmulatedTask, stop: threading.Event | None = None) -> EmulatedRun:
    """Run steps in as many processes as there are ranks. Raises `RunError` where a process fails."""

    def leave(folder: Path) -> None:
        write_torch_pipeline(folder / "schedule.csv", order, task.form)

    found = run_ranks(prepared, task, order.ranks, task.wait_s, stop, leave=leave)
    return EmulatedRun(
        spans_s([rank["spans"] for rank in found]), tuple(s for rank in found for s in rank["overhead_s"]),
        tuple(rank["kept_bytes"] for rank in found),
    )  # fmt: skip
