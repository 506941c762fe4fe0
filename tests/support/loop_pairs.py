"""The five loops of docs/how-to/loops.md: before and after, what differs, and what they print. Imports no torch."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["LOOPS", "changes", "page_diffs", "printed"]

ROOT = Path(__file__).resolve().parents[2]
LOOPS = ("plain", "trainer", "lit", "ddp", "compiled")
"""Each is `NAME.py` and `NAME_planned.py` of docs/loops; in the page's order."""
_PAGE = ROOT / "docs" / "how-to" / "loops.md"
_PATIENCE_S = 600


def changes(loop: str) -> list[str]:
    """The lines that a loop loses and gets, with their signs; between places, and at an end, stands "..."."""
    before, after = (
        (ROOT / "docs" / "loops" / name).read_text(encoding="utf-8").splitlines()
        for name in (f"{loop}.py", f"{loop}_planned.py")
    )
    lines = ["..." if line.startswith("@@") else line for line in list(difflib.unified_diff(before, after, n=0))[2:]]
    return [line for line in lines if line not in ("+", "-")][1:]


def page_diffs() -> list[list[str]]:
    """The blocks of differences that the page shows."""
    blocks = re.findall(r"^```diff\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in blocks]


def printed(script: str, processes: int = 0, kernels: Path | None = None) -> tuple[list[str], str]:
    """What a script prints of losses, in order, and stderr; of so many processes, by torchrun.

    `kernels`: the folder of the compiler's cache, else that of the machine.
    """
    ranks = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes else []
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if kernels is not None:
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(kernels)
    command = [sys.executable, *ranks, str(ROOT / "docs" / "loops" / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("step", "rank", "evaluated", "validated"))]
    return (sorted(lines) if processes else lines), done.stderr
