"""A process for each rank, all of which end: with an answer, with an error, or because another one did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from gapless.errors import InputError, RunError
from gapless.leaving import undone_on_leaving
from gapless.torch.library import torch

__all__ = ["be_rank", "run_processes"]

_LOOK_S = 0.05
_WAITS = 10
"""So many times what a process may wait for another they may take in all, if none of them comes through."""


def run_processes(
    module: str, folder: Path, ranks: int, wait_s: float, stop: threading.Event | None = None
) -> list[dict[str, Any]]:
    """What each rank found, of the task in a folder: `python -m module FOLDER RANK`, which calls `be_rank`.

    Raises `RunError` where a rank fails or is killed, where they take ten times as long as one may wait for another, or
    `stop` is set; no process is left then.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[bytes]] = []
    with undone_on_leaving(lambda: _kill(processes)), (folder / "output").open("wb") as output:
        try:
            for rank in range(ranks):
                command = [sys.executable, "-m", module, str(folder), str(rank)]
                processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment,
                                                  stdin=subprocess.DEVNULL, start_new_session=True))  # fmt: skip
            _wait(folder, processes, wait_s, stop)
        finally:
            _kill(processes)
            for process in processes:
                process.wait()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(ranks)]


def _wait(folder: Path, processes: list[subprocess.Popen[bytes]], wait_s: float, stop: threading.Event | None) -> None:
    """Until all have ended well."""
    deadline_s = time.monotonic() + _WAITS * wait_s
    while True:
        codes = [process.poll() for process in processes]
        if any(codes):
            raise RunError(_what_failed(folder, codes))
        if None not in codes:
            return
        if stop is not None and stop.is_set():
            raise RunError("the ranks were stopped before they were done")
        if time.monotonic() > deadline_s:
            waiting = ", ".join(str(rank) for rank, code in enumerate(codes) if code is None)
            raise RunError(f"ranks {waiting}: no end within {_WAITS * wait_s:g} s; give a longer --wait")
        time.sleep(_LOOK_S)


def _what_failed(folder: Path, codes: list[int | None]) -> str:
    """One line: of a process that was killed, if there is one, since others fail for want of it."""
    killed = [rank for rank, code in enumerate(codes) if code is not None and code < 0]
    if killed:
        return f"rank {killed[0]}: its process was killed by signal {-(codes[killed[0]] or 0)}; the others were ended"
    rank = next(rank for rank, code in enumerate(codes) if code)
    found = folder / f"rank{rank}.error"
    return f"rank {rank}: {found.read_text('utf-8') if found.exists() else f'ended with {codes[rank]}'}"


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    """Those that still run; without a wait, since a signal's handler may call it."""
    for process in processes:
        if process.poll() is None:
            process.kill()


def be_rank(prepare: Callable[[Path], tuple[int, float, Callable[[int], dict[str, Any]]]]) -> NoReturn:
    """One of the processes, over gloo: leaves `rank0.pt` in the folder with what it found, or `rank0.error`.

    `prepare(folder)`: how many ranks there are, how long one waits for another, and what each does.
    """
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    try:
        _join(folder, rank, *prepare(folder))
    except BaseException as error:
        (folder / f"rank{rank}.error").write_text(_line(error), "utf-8")
        os._exit(1)
    os._exit(0)  # gloo's threads now and then abort a process that ends as usual


def _join(folder: Path, rank: int, ranks: int, wait_s: float, program: Callable[[int], dict[str, Any]]) -> None:
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # a machine's own name may not resolve to an address
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    place, wait = f"file://{folder / 'store'}", timedelta(seconds=wait_s)
    torch.distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=ranks, timeout=wait)
    torch.save(program(rank), folder / f"rank{rank}.part")
    (folder / f"rank{rank}.part").rename(folder / f"rank{rank}.pt")
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s and not all((folder / f"rank{other}.pt").exists() for other in range(ranks)):
        time.sleep(0.02)  # a rank that leaves early can break what another still receives


def _line(error: BaseException) -> str:
    """What went wrong, in one line."""
    if re.search(r"timed? ?out", str(error), re.IGNORECASE):
        return "no message from another rank within the time that it may wait; give a longer --wait"
    line = next(iter(str(error).strip().splitlines()), "")
    return line if isinstance(error, InputError) else f"{type(error).__name__}: {line}"
