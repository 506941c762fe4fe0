"""A program in several processes that talk through gloo. Imports torch."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))  # ranks find the module whose function they run, by path

_LIMIT_S = 300.0
"""Far above what it takes: a stuck process fails the test, a slow machine doesn't."""


def run_ranks(program: Callable[[int, Path], Any], ranks: int, folder: Path) -> list[Any]:
    """What `program(rank, folder)`, a module's own function, returned in each process of a group.

    Raises `RuntimeError` with what went wrong.
    """
    processes = [
        _context().Process(target=_work, args=(program, rank, ranks, str(folder)), daemon=True) for rank in range(ranks)
    ]
    deadline = time.monotonic() + _LIMIT_S
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes) and not _failed(processes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"ranks: must end within {_LIMIT_S:g} s")
            time.sleep(0.05)
        if _failed(processes):
            told = [path.read_text() for path in sorted(folder.glob("*.error"))]
            raise RuntimeError("\n".join(told) or f"ranks ended with {[process.exitcode for process in processes]}")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]


def _context() -> Any:
    """Where it can, a process that has imported torch once for all ranks."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


def _work(program: Callable[[int, Path], Any], rank: int, ranks: int, folder: str) -> None:
    """One rank: what the program returns goes into `rank<r>.pt`, or what went wrong into `rank<r>.error`."""
    place = Path(folder)
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # a machine's own name may not resolve to an address
    warnings.simplefilter("error")  # as in the tests' own process
    try:
        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{place / 'store'}", rank=rank, world_size=ranks, timeout=timedelta(seconds=120)
        )
        torch.save(program(rank, place), place / f"rank{rank}.pt")
        while not all((place / f"rank{other}.pt").exists() for other in range(ranks)):
            time.sleep(0.05)  # a rank that leaves early can break the other's last collective; `run_ranks` ends a wait
    except BaseException:
        (place / f"rank{rank}.error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)  # gloo's threads now and then abort a process that ends the usual way


def _failed(processes: list[BaseProcess]) -> bool:
    return any(process.exitcode not in (None, 0) for process in processes)
