"""Orders that public schedulers make of a step: zero-bubble's, torch's and DeepSeek's own programs are run, on a CPU.

`python tests/support/schedule_programs.py ZERO_BUBBLE DUALPIPE` writes `tests/benchmarks/schedule_programs.json` from
checkouts of sail-sg/zero-bubble-pipeline-parallelism and deepseek-ai/DualPipe. Modules that they import and that need
GPUs are stood in for by empty ones, and what DualPipe computes and sends by a note of it. So the benchmark needs none
of the programs.

An order is a text for each rank, a letter for each op: `F`, `B`, `W` of its first stage, `f`, `b`, `w` of its second
one, micro-batches first in, first out; `X` and `x`: a backward and its weight gradient as one op.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["CASES", "RECORD", "Case", "recorded"]

RECORD = Path(__file__).parents[1] / "benchmarks" / "schedule_programs.json"
_PACKAGES = ("megatron", "core", "pipeline_parallel", "zerobubble", "scheduler")
_TORCHS = {"1F1B": 1, "GPipe": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2, "ZBVZeroBubble": 2}
_MESSAGES = (
    "_recv_forward", "_recv_backward", "_send_forward", "_send_backward", "_commit_and_wait_comm", "_reset_states",
)  # fmt: skip
_COSTS = ((10.0, 10.0, 10.0, 0.0), (10.0, 12.0, 8.0, 2.0), (9.0, 15.0, 6.0, 0.0), (12.0, 10.0, 14.0, 3.0))
_SIZES = ((4, 8), (4, 32), (6, 12), (8, 16), (8, 32), (12, 24), (16, 32), (16, 64))


@dataclass(frozen=True)
class Case:
    """A program on P ranks and M micro-batches, which take `costs` on a rank: forward, gradients of inputs and weights,
    and a message. `limit`: micro-batches for which a program that asks for it has memory."""

    program: str
    ranks: int
    micro_batches: int
    costs: tuple[float, float, float, float]
    limit: float = 0.0

    @property
    def name(self) -> str:
        """As tables and the record have it."""
        of, costs = f" in {self.limit:g}" if self.limit else "", ", ".join(f"{each:g}" for each in self.costs)
        return f"{self.program}{of}, {self.ranks} x {self.micro_batches}, {costs}"

    @property
    def placement(self) -> str:
        """Where the program has stages."""
        if self.program == "DualPipe":
            return "bidirectional"
        if self.program in ("torch Interleaved1F1B", "torch LoopedBFS", "torch InterleavedZeroBubble"):
            return "looped"
        is_v = self.program in ("zero-bubble V", "V-Half", "V-Min", "1F1B-V", "torch ZBVZeroBubble", "DualPipeV")
        return "v" if is_v else "linear"


def _cases() -> list[Case]:
    """Sixty: each program on several sizes and costs, in turns."""
    counts = {"zero-bubble": 14, "zero-bubble V": 8, "V-Half": 6, "V-Min": 6, "1F1B-V": 2}
    counts |= {"DualPipe": 3, "DualPipeV": 3}
    counts |= {f"torch {name}": 3 for name in _TORCHS}
    found = []
    for number, (program, count) in enumerate(counts.items()):
        for turn in range(count):
            ranks, micro_batches = _SIZES[(turn + number) % len(_SIZES)]
            limit = (1.0, 1.25, 1.5, 2.0)[turn // 2 % 4] * ranks if program == "zero-bubble" else 0.0
            found.append(Case(program, ranks, micro_batches, _COSTS[(turn + turn // 4) % len(_COSTS)], limit))
    return found


CASES = _cases()


def recorded() -> dict[str, list[str]]:
    """The orders of all cases by their names."""
    found: dict[str, list[str]] = json.loads(RECORD.read_text())["orders"]
    return found


def _stood_in(folder: Path) -> None:
    """Empty packages on the way to the schedulers, and what reads the values of a solver's variables."""
    path, name = folder, ""
    for part in _PACKAGES:
        path, name = path / part, f"{name}.{part}".lstrip(".")
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(path)]
    sys.modules["pulp"] = ModuleType("pulp")
    vars(sys.modules["pulp"])["value"] = lambda value: value


def _zero_bubble(case: Case) -> list[str]:
    """As its runtime calls them: V-Half and V-Min of equal ops whatever these cost."""
    at = ".".join(_PACKAGES)
    graph, zb, zbv, greedy, one = (
        importlib.import_module(f"{at}.{name}") for name in ("graph", "zb", "zbv", "zbv_greedy", "v1f1b")
    )
    chunks, ranks = (1 if case.program == "zero-bubble" else 2), case.ranks
    f, b, w, hop = (*(each / chunks for each in case.costs[:3]), case.costs[3])
    config = graph.GraphConfig(
        cost_f=[f] * ranks, cost_b=[b] * ranks, cost_w=[w] * ranks, cost_comm=hop, mem_f=[1.0] * ranks,
        mem_b=[0.0] * ranks, mem_w=[-1.0] * ranks, max_mem=[case.limit] * ranks if case.limit else None,
        max_chunks=chunks, n_stages=ranks, n_micro=case.micro_batches,
    )  # fmt: skip
    if case.program == "zero-bubble":
        made = zb.create_schedule(config)
    elif case.program == "1F1B-V":
        made = one.create_schedule(config)
    elif case.program == "zero-bubble V":
        made = zbv.PipelineGraph(ranks, case.micro_batches, f, b, w, hop, f_mem=1.0, b_mem=0.0, w_mem=-1.0)
        made = made.create_schedule(config)
    else:
        setup = case.program.removeprefix("V-").lower()
        made = greedy.PipelineGraph(ranks, case.micro_batches, setup, 1000, 1000, 1000, 1).create_schedule(config)
    letters = {"F": "Ff", "B": "Bb", "W": "Ww", "BW": "Xx"}
    return ["".join(letters[str(node.type)][node.layer_group_idx // ranks] for node in nodes) for nodes in made]


def _torch(case: Case) -> list[str]:
    from torch.distributed.pipelining import schedules

    name, ranks, micro_batches = case.program.removeprefix("torch "), case.ranks, case.micro_batches
    if name in ("1F1B", "GPipe"):  # which torch runs, and makes no table of
        ahead = [micro_batches if name == "GPipe" else min(ranks - rank, micro_batches) for rank in range(ranks)]
        return ["F" * first + "XF" * (micro_batches - first) + "X" * first for first in ahead]
    chunks, orders = _TORCHS[name], []
    for rank in range(ranks):
        schedule: Any = object.__new__(getattr(schedules, f"Schedule{name}"))
        vars(schedule).update(
            pp_group_size=ranks, num_stages=chunks * ranks, _num_stages=chunks * ranks, n_local_stages=chunks,
            _n_microbatches=micro_batches, _stages=[SimpleNamespace()] * chunks, rank=rank,
            number_of_rounds=micro_batches // ranks, microbatches_per_round=ranks,
        )  # fmt: skip
        letters = {"FORWARD": "Ff", "BACKWARD_INPUT": "Bb", "BACKWARD_WEIGHT": "Ww", "FULL_BACKWARD": "Xx"}
        actions = [each for each in schedule._calculate_single_rank_operations(rank) if each is not None]  # noqa: SLF001
        orders.append("".join(letters[each.computation_type.name][each.stage_index // ranks] for each in actions))
    return orders


def _dualpipe(case: Case) -> list[str]:
    """What its ranks compute: all that they send and receive is left out."""
    import torch

    module = importlib.import_module(f"dualpipe.{case.program.lower()}")
    vars(module)["scatter"] = lambda inputs, chunks, dim: [()] * chunks
    vars(module.comm).update(TENSOR_SHAPES=[(1,)], TENSOR_DTYPE=torch.float32)
    kind, half, orders = getattr(module, case.program), case.ranks // 2, []
    for rank in range(case.ranks):
        pipe = object.__new__(kind)
        vars(pipe).update(
            rank=rank, num_ranks=case.ranks, is_first_rank=rank == 0, is_last_rank=rank == case.ranks - 1,
            is_middle_rank=rank in (half - 1, half), is_in_second_half=rank >= half, batch_dim=0,
            loss_chunks=[torch.zeros(())], **dict.fromkeys(_MESSAGES, lambda *args: None), **_notes(ops := []),
        )  # fmt: skip
        kind.step(pipe, num_chunks=case.micro_batches, criterion=lambda *args: None)
        orders.append("".join(ops))
    return orders


def _notes(ops: list[str]) -> dict[str, Any]:
    """What notes ops instead of computing them: a weight gradient that waits goes first in, first out."""
    late: list[str] = []

    def backward(phase: int, enable_zb: bool = False) -> None:
        ops.append(("Bb" if enable_zb else "Xx")[phase])
        late.extend(["Ww"[phase]] * enable_zb)

    return {
        "_forward_compute_chunk": lambda phase: ops.append("Ff"[phase]),
        "_backward_compute_chunk": backward,
        "_forward_backward_compute_chunk": lambda first, then: ops.extend(["Ff"[first], "Xx"[then]]),
        "_weight_chunk": lambda: ops.append(late.pop(0)),
    }


def _made(case: Case) -> list[str]:
    if case.program.startswith("torch "):
        return _torch(case)
    return _dualpipe(case) if case.program.startswith("DualPipe") else _zero_bubble(case)


def _record(zero_bubble: str, dualpipe: str) -> None:
    _stood_in(Path(zero_bubble))
    sys.path.insert(0, dualpipe)
    with contextlib.redirect_stdout(io.StringIO()):
        orders = {case.name: _made(case) for case in CASES}
    RECORD.write_text(json.dumps({"orders": orders}, indent=0) + "\n")


if __name__ == "__main__":
    _record(*sys.argv[1:])
