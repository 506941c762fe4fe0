"""One rank of a profile of links: the folder holds `task.json`.

Rank 0 decides what is measured; it ends with what is known once there is a file `stop` in the folder.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.topologies.measured.experiments import Experiments, OutOfTimeError, Settings
from gapless.topologies.measured.machine import MeasuredMachine, measure_machine
from gapless.torch.devices import gpu_count, own_gpu
from gapless.torch.library import torch
from gapless.torch.links.transfers import Transfers
from gapless.torch.processes import Program, built, read_task
from gapless.torch.ranks import run_ranks

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["LinksTask", "Profiled", "measured_links", "prepared"]

_GRACE_S = 10.0
"""How long ranks have to end by themselves once they are stopped."""
_MEETINGS = 3
"""So many times may ranks wait for each other beside the time for transfers: to meet, for a last one, to part."""


@dataclass(frozen=True)
class LinksTask:
    """What the ranks measure. `seconds`: for all of it. `wait_s`: the longest that a rank waits for another."""

    ranks: int
    backend: str
    by: str
    sizes: tuple[int, ...]
    precision: float
    seconds: float
    wait_s: float


@dataclass(frozen=True)
class Profiled:
    """The machine, None where the time was over before its structure was known; and the number of experiments.

    `needed_s`: about how long it takes until the structure is known, as far as that was to be seen.
    """

    machine: MeasuredMachine | None
    experiments: int
    needed_s: float


def measured_links(task: LinksTask, stop: threading.Event | None = None, among: Ranks | None = None) -> Profiled:
    """Measure in as many processes, or `among` those that are there; after a rank has waited too long, all end.

    Raises `InputError` for a backend that this torch or machine doesn't have, and `RunError` where a rank fails.
    """
    _check_backend(task, among)
    late, is_over = threading.Event(), threading.Event()

    def watch(folder: Path) -> None:
        passing = (stop or threading.Event(), folder, late, is_over)
        threading.Thread(target=_pass_on, args=passing, daemon=True).start()

    limit_s = task.seconds + _MEETINGS * task.wait_s
    try:
        found, *_ = run_ranks(prepared, task, task.ranks, task.wait_s, late, among, watch, limit_s=limit_s)
    finally:
        is_over.set()
    machine = built(MeasuredMachine, json.loads(found["machine"])) if found["machine"] else None
    return Profiled(machine, found["experiments"], found["needed_s"])


def _pass_on(stop: threading.Event, folder: Path, late: threading.Event, is_over: threading.Event) -> None:
    """Once `stop` is set, ask rank 0 to end with what it knows, and some time later end all ranks."""
    while not stop.wait(0.1):
        if is_over.is_set():
            return
    if folder.exists():
        (folder / "stop").touch()
    if not is_over.wait(_GRACE_S):
        late.set()


def _check_backend(task: LinksTask, among: Ranks | None) -> None:
    distributed = torch.distributed
    is_there = distributed.is_available() and distributed.is_backend_available(task.backend)
    if not is_there:
        raise InputError(f"backend: this installation of torch has no {task.backend}; take gloo")
    if task.backend == "nccl" and among is None and gpu_count() < task.ranks:
        got = gpu_count()
        raise InputError(f"backend: nccl needs a GPU for each of {task.ranks} ranks, this machine has {got}")


def prepared(folder: Path) -> Program:
    """What `measured_links` has left in a folder for all ranks."""
    task = read_task(folder, LinksTask)
    return Program(task.ranks, task.wait_s, lambda rank: _work(task, folder, rank), task.backend)


def _work(task: LinksTask, folder: Path, rank: int) -> dict[str, object]:
    begun_s = time.monotonic()
    transfers = Transfers(_device(task.backend), task.wait_s)
    if rank:
        transfers.serve()
        return {}
    settings = Settings(sizes=task.sizes, precision=task.precision)

    def left_s() -> float:
        return 0.0 if (folder / "stop").exists() else begun_s + task.seconds - time.monotonic()

    experiments, machine = Experiments(transfers, settings, left_s), None
    try:
        machine = measure_machine(experiments, task.by)
    except OutOfTimeError:
        pass
    finally:
        transfers.done()
    text = "" if machine is None else json.dumps(asdict(machine))
    needed_s = experiments.needed_s(time.monotonic() - begun_s)
    return {"machine": text, "experiments": experiments.count, "needed_s": needed_s}


def _device(backend: str) -> torch.device:
    return own_gpu(int(os.environ.get("LOCAL_RANK", "0"))) if backend == "nccl" else torch.device("cpu")
