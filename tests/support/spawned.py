"""The command line in a process of its own, which signals can reach."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]


def spawn(*arguments: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
    """`gapless` with these arguments; what it prints goes into a pipe, or into an open file."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gapless", *arguments]
    return subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
