"""Reads changed files of each format, each in a process of its own, and says what that took: one JSON line a file.

`python forked_reads.py SEED COUNT FOLDER [NAME ...]`. Nothing but the main thread runs here, so that forking is safe:
the files that are changed are made, and read first, in processes of their own too.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapless.errors import InputError

CPU_S = 20
"""A process that takes longer is ended."""


@dataclass(frozen=True)
class Outcome:
    """What came of a file. `kind`: `taken`, `refused`, `traceback`, or `ended` for a process that was killed."""

    name: str
    number: int
    kind: str
    said: str
    cpu_s: float
    grown_bytes: int


def in_fork(work: Callable[[], tuple[str, str]], name: str, number: int) -> Outcome:
    """What `work` returns, the CPU time that it took, and by how much the process has grown beyond this one."""
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writer, "w", encoding="utf-8", errors="surrogateescape") as answer:
            try:
                found = work()
            except BaseException:
                found = "traceback", traceback.format_exc()[-2000:]
            answer.write(json.dumps(found))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        text = answer.read()
    _, status, taken = os.wait4(process, 0)
    kind, said = json.loads(text) if text else ("ended", f"status {status}")
    return Outcome(name, number, kind, said, taken.ru_utime + taken.ru_stime, max(0, taken.ru_maxrss * 1024 - before))


def used(use: Callable[[Path], None], path: Path) -> tuple[str, str]:
    try:
        use(path)
    except InputError as error:
        return "refused", str(error)
    return "taken", ""


def loaded() -> str:
    """The modules that a process has loaded."""
    return " ".join(module for module in sys.modules if module.split(".")[0] in ("gapless", "numpy"))


def load(made: Outcome) -> None:
    """Load what another process has, so that not every one of them does."""
    assert made.kind == "taken", made
    for module in made.said.split():
        with suppress(ImportError):
            importlib.import_module(module)


def outcomes(name: str, case: Any, folder: Path, seed: int, count: int) -> Iterator[Outcome]:
    """Those of so many changed files of a format."""
    (folder / "made").mkdir(parents=True)
    (folder / "changed").mkdir()
    source, target = folder / "made" / case.name, folder / "changed" / case.name

    def make() -> tuple[str, str]:
        case.make(source)
        assert used(case.use, source)[0] == "taken", used(case.use, source)
        return "taken", loaded()

    load(in_fork(make, name, -1))
    for number, content in enumerate(case.changed(source.read_bytes(), seed, count)):
        for left in target.parent.iterdir():
            left.unlink()
        target.write_bytes(content)
        yield in_fork(lambda: used(case.use, target), name, number)


def main() -> None:
    from more_read_cases import ALL

    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    for name in sys.argv[4:] or ALL:
        for outcome in outcomes(name, ALL[name], folder / name, seed, count):
            print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
