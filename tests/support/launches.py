"""Ranks as a launcher starts them: `gapless` once for each, with what torchrun leaves in the environment."""

from __future__ import annotations

import os
import socket
import subprocess

from spawned import Ended, ended, spawn

__all__ = ["free_port", "launch", "start"]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start(rank: int, ranks: int, port: int, *arguments: str) -> subprocess.Popen[str]:
    """One rank."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    who = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    return spawn(*arguments, environment={**os.environ, **where, **who})


def launch(ranks: int, *arguments: str) -> list[Ended]:
    """How all ranks of a command end."""
    port = free_port()
    processes = [start(rank, ranks, port, *arguments) for rank in range(ranks)]
    return [ended(process) for process in processes]
