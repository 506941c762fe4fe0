"""A process for each rank, all of which end: with an answer, with an error, or because another one did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from gapless.errors import GaplessError, InputError, RunError
from gapless.io.atomic import write_text
from gapless.processes.exit import undone_on_leaving
from gapless.torch.devices import gpu_count, own_gpu
from gapless.torch.library import torch

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "WAITS",
    "Prepared",
    "Program",
    "backend_device",
    "begin",
    "built",
    "check_backend",
    "error_line",
    "meet_again",
    "read_task",
    "replaced",
    "run_processes",
    "write_task",
]

Task = TypeVar("Task")

WAITS = 10
"""So many times what a process may wait for another they may take in all, if none of them comes through."""

_LOOK_S = 0.05
_REPLACED = "replaced.json"


class Program(NamedTuple):
    """What `ranks` processes are to do: each `work(rank)`, over a backend of `torch.distributed`.

    `wait_s`: how long one waits for another.
    """

    ranks: int
    wait_s: float
    work: Callable[[int], dict[str, Any]]
    backend: str = "gloo"


Prepared: TypeAlias = Callable[[Path], Program]
"""Of a folder with a task: what all of its ranks do."""


def write_task(folder: Path, task: DataclassInstance) -> None:
    """Leave a task for its ranks: a dataclass of plain values, tuples, and other such dataclasses."""
    (folder / "task.json").write_text(json.dumps(asdict(task)), "utf-8")


def read_task(folder: Path, kind: type[Task]) -> Task:
    """What `write_task` left in a folder."""
    return built(kind, json.loads((folder / "task.json").read_text("utf-8")))


def built(kind: type[Task], data: Any) -> Task:
    """What plain values of JSON stand for: frozen dataclasses, or None where there may be none, tuples and scalars."""
    if data is not None and type(None) in get_args(kind):
        kind = get_args(kind)[0]
    kinds = get_type_hints(kind) if is_dataclass(kind) else {}
    if kinds:
        return kind(**{name: built(kinds[name], value) for name, value in data.items()})
    if get_origin(kind) is tuple:
        first, *rest = get_args(kind)
        data = tuple(map(built, [first] * len(data) if rest == [...] else [first, *rest], data))
    whole: Task = data
    return whole


def run_processes(
    prepared: Prepared, folder: Path, ranks: int, wait_s: float, stop: threading.Event | None = None,
    replaceable: int = 0, limit_s: float | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """What each rank found, of the task in a folder, as a module's own function `prepared` reads it.

    Of the first `replaceable` ranks another process takes the place of one that is killed, once for each; the others
    find it by `replaced` and `meet_again`.

    Raises `RunError` where a rank fails or is killed, where they take longer than `limit_s`, or else ten times as long
    as one may wait for another, or `stop` is set; no process is left then.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    place = prepared.__module__, prepared.__qualname__
    processes: list[subprocess.Popen[bytes]] = []

    def started(rank: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", __name__, str(folder), str(rank), *place]
        return subprocess.Popen(command, stdout=output, stderr=output, env={**environment, "LOCAL_RANK": str(rank)},
                                stdin=subprocess.PIPE, start_new_session=True)  # fmt: skip

    def replace(rank: int) -> None:
        processes[rank].communicate()
        write_text(folder / _REPLACED, json.dumps([*replaced(folder), rank]))
        processes[rank] = started(rank)

    with undone_on_leaving(lambda: _kill(processes)), (folder / "output").open("wb") as output:
        try:
            for rank in range(ranks):
                processes.append(started(rank))
            limit_s = WAITS * wait_s if limit_s is None else limit_s
            while (killed := _wait(folder, processes, limit_s, stop, replaceable)) is not None:
                replace(killed)
        finally:
            _kill(processes)
            for process in processes:
                process.communicate()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(ranks)]


def replaced(folder: Path) -> list[int]:
    """The ranks of which another process has taken the place, in the order in which that happened."""
    path = folder / _REPLACED
    ranks: list[int] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return ranks


def meet_again(folder: Path, ranks: int, rank: int, known: int, wait_s: float) -> list[int]:
    """Once more ranks than `known` are replaced: a new process group of all, and which they are.

    This process has destroyed its old group: who waits for it there hears so of the loss.
    Raises `RunError` where that doesn't happen.
    """
    end_s = time.monotonic() + wait_s
    while len(new := replaced(folder)) <= known:
        if time.monotonic() > end_s:
            raise RunError(f"rank {rank}: nobody took the place of a lost process within {wait_s:g} s")
        time.sleep(_LOOK_S)
    _meet("gloo", ranks, rank, wait_s, init_method=_place(folder, len(new)))
    return new


def _place(folder: Path, replacements: int) -> str:
    """Where ranks meet, anew after each replacement."""
    return f"file://{folder / 'store'}{replacements}"


def _wait(
    folder: Path, processes: list[subprocess.Popen[bytes]], limit_s: float, stop: threading.Event | None,
    replaceable: int,
) -> int | None:  # fmt: skip
    """Until all have ended well, or one that can be replaced was killed: its rank."""
    deadline_s = time.monotonic() + limit_s
    while True:
        codes = [process.poll() for process in processes]
        lost = [rank for rank, code in enumerate(codes) if code is not None and code < 0]
        if lost and lost[0] < replaceable and lost[0] not in replaced(folder):
            return lost[0]
        if any(codes):
            raise RunError(_what_failed(folder, codes))
        if None not in codes:
            return None
        if stop is not None and stop.is_set():
            raise RunError("the ranks were stopped before they were done")
        if time.monotonic() > deadline_s:
            waiting = ", ".join(str(rank) for rank, code in enumerate(codes) if code is None)
            raise RunError(f"ranks {waiting}: no end within {limit_s:g} s; give a longer --wait")
        time.sleep(_LOOK_S)


def _what_failed(folder: Path, codes: list[int | None]) -> str:
    """One line: of a process that was killed, if there is one, or of the first to fail: others fail for want of it."""
    killed = [rank for rank, code in enumerate(codes) if code is not None and code < 0]
    if killed:
        return f"rank {killed[0]}: its process was killed by signal {-(codes[killed[0]] or 0)}; the others were ended"
    left = {rank: path for rank in range(len(codes)) if (path := folder / f"rank{rank}.error").exists()}
    if not left:
        rank = next(rank for rank, code in enumerate(codes) if code)
        return f"rank {rank}: ended with {codes[rank]}"
    rank = min(left, key=lambda rank: left[rank].stat().st_mtime_ns)
    return f"rank {rank}: {left[rank].read_text('utf-8')}"


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    """Those that still run; without a wait, since a signal's handler may call it."""
    for process in processes:
        if process.poll() is None:
            process.kill()


def _be_rank(folder: Path, rank: int, module: str, function: str) -> NoReturn:
    """One of the processes: leaves `rank0.pt` in the folder with what it found, or `rank0.error`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _join(folder, rank, getattr(import_module(module), function)(folder))
    except BaseException as error:
        (folder / f"rank{rank}.error").write_text(error_line(error), "utf-8")
        os._exit(1)
    os._exit(0)  # gloo's threads now and then abort a process that ends as usual


def _end_with_parent() -> None:
    """What started this process holds the other end of its stdin, also where it is killed."""
    sys.stdin.buffer.read()
    os._exit(1)


def _join(folder: Path, rank: int, program: Program) -> None:
    begin(program, rank, init_method=_place(folder, len(replaced(folder))))
    torch.save(program.work(rank), folder / f"rank{rank}.part")
    (folder / f"rank{rank}.part").rename(folder / f"rank{rank}.pt")
    end_s = time.monotonic() + program.wait_s
    while time.monotonic() < end_s and not all((folder / f"rank{other}.pt").exists() for other in range(program.ranks)):
        time.sleep(0.02)  # a rank that leaves early can break what another still receives


def check_backend(backend: str) -> None:
    """Raises `InputError` where PyTorch hasn't the backend."""
    if not torch.distributed.is_backend_available(backend):
        there = [name for name in ("gloo", "nccl", "mpi") if torch.distributed.is_backend_available(name)]
        raise InputError(f"backend: must be one that this PyTorch has ({', '.join(there)}), got {backend!r}")


def backend_device(backend: str) -> torch.device:
    """Where this process's buffers are: on the GPU of its place on the machine, `LOCAL_RANK`, for nccl.

    Raises `InputError` where PyTorch hasn't the backend, or the machine not the GPU.
    """
    check_backend(backend)
    if backend != "nccl":
        return torch.device("cpu")
    place, count = int(os.environ.get("LOCAL_RANK", "0")), gpu_count()
    if place >= count:
        raise InputError(f"backend: nccl takes a GPU for each rank, this machine has {count}; got local rank {place}")
    return own_gpu(place)


def begin(program: Program, rank: int, **meeting: str | torch.distributed.Store) -> None:
    """Make the process group of a program; `meeting`: where its ranks meet, as torch takes it."""
    backend_device(program.backend)
    _meet(program.backend, program.ranks, rank, program.wait_s, **meeting)


def _meet(backend: str, ranks: int, rank: int, wait_s: float, **meeting: str | torch.distributed.Store) -> None:
    host = os.environ.get("MASTER_ADDR", "localhost") if "store" in meeting else "localhost"
    if sys.platform == "linux" and host in ("localhost", "127.0.0.1"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a machine's own name may not resolve to an address
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wait = timedelta(seconds=wait_s)
    torch.distributed.init_process_group(backend, rank=rank, world_size=ranks, timeout=wait, **meeting)


def error_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    if re.search(r"timed? ?out", str(error), re.IGNORECASE):
        return "no message from another rank within the time that it may wait; give a longer --wait"
    line = next(iter(str(error).strip().splitlines()), "")
    return line if isinstance(error, GaplessError) else f"{type(error).__name__}: {line}"


if __name__ == "__main__":
    _be_rank(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
