"""A cluster on one machine: a network namespace for each rank, joined by queues of limited bandwidth (root, Linux).

    with emulated_cluster(topology) as cluster:
        cluster.topology        # what is emulated: `topology` with its bandwidths times `cluster.scale`
        ended = cluster.run([sys.executable, "train.py"], timeout_s=60)
        ended[0].code, ended[0].out     # of rank 0; out: what it printed, stdout and stderr together

Every process finds what torchrun would give it: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and the name of
its only interface in GLOO_SOCKET_IFNAME. `start` is `run` without the wait; `pids` and `namespaces` of
`gapless.emulation.namespaces` say what is still there.

Latencies are what this machine's own network stack makes of them; the token buckets add none.

All is removed when the block is left, also by an exception, Ctrl-C, TERM or HUP. What a killed process has left behind
is removed when the next cluster is made.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType

from gapless.emulation.namespaces import PREFIX, address, build, namespaces, rank_namespace, remove, remove_left_over
from gapless.emulation.queues import paths_of, queues_of, sent_at_once
from gapless.topologies.emulated import ALPHA_S, scaled
from gapless.topologies.topology import Topology

__all__ = ["TOTAL_BYTES_PER_S", "Cluster", "Ended", "Running", "emulated_cluster"]

TOTAL_BYTES_PER_S = 100e6
"""What all ranks together can send at once, at most: some hundred megabytes a second keep two cores busy."""
_PORT = 29500
_POLL_S = 0.02
_COUNT = count()


@dataclass(frozen=True)
class Ended:
    """How a rank's process has ended; `code` is negative for a signal, as in `subprocess`."""

    code: int
    out: str


@dataclass(frozen=True)
class Running:
    """The processes of a command, one a rank, and the files that they print to."""

    processes: tuple[subprocess.Popen[bytes], ...]
    printed: tuple[Path, ...]

    def is_over(self) -> bool:
        """Whether all have ended."""
        return all(process.poll() is not None for process in self.processes)

    def failed(self) -> int | None:
        """The first rank whose process has ended otherwise than with 0, None if there is none."""
        return next((rank for rank, process in enumerate(self.processes) if process.poll()), None)

    def ended(self) -> list[Ended]:
        """How all have ended, once they have."""
        pairs = zip(self.processes, self.printed, strict=True)
        return [Ended(process.returncode, path.read_text("utf-8", "replace")) for process, path in pairs]

    def wait(self, timeout_s: float) -> list[Ended]:
        """How all have ended. Raises `TimeoutError` with what they printed where one doesn't within the time."""
        end_s = time.monotonic() + timeout_s
        while not self.is_over():
            if time.monotonic() > end_s:
                late = [rank for rank, process in enumerate(self.processes) if process.poll() is None]
                printed = "\n".join(f"rank {rank}: {path.read_text()}" for rank, path in enumerate(self.printed))
                self.kill()
                raise TimeoutError(f"ranks {late}: no end within {timeout_s:g} s\n{printed}")
            time.sleep(_POLL_S)
        return self.ended()

    def kill(self) -> None:
        """End those that still run."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@dataclass(frozen=True)
class Cluster:
    """A cluster that is there. `scale`: its bandwidths over those that were asked for."""

    topology: Topology
    scale: float
    name: str
    folder: Path

    def namespace(self, rank: int) -> str:
        """The name of a rank's network namespace."""
        return rank_namespace(self.name, rank)

    def address(self, rank: int) -> str:
        """A rank's address, which only the other ranks can reach."""
        return address(rank)

    def bytes_per_s(self, source: int, target: int) -> float:
        """The bandwidth from one rank to another."""
        rates, _ = queues_of(self.topology)
        return min(rates[queue] for queue in paths_of(self.topology)[source, target])

    def environment(self, rank: int) -> dict[str, str]:
        """What a launcher would leave for a rank."""
        node_ranks = self.topology.ranks_of_node(self.topology.node_of_device[rank])
        given = {
            "RANK": rank, "WORLD_SIZE": self.topology.device_count, "LOCAL_RANK": node_ranks.index(rank),
            "LOCAL_WORLD_SIZE": len(node_ranks), "MASTER_ADDR": address(0), "MASTER_PORT": _PORT,
            "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1,
        }  # fmt: skip
        return {key: str(value) for key, value in given.items()}

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, shown: Collection[int] = ()
    ) -> Running:
        """The same command for every rank, each in its namespace; what the ranks of `shown` print, we print."""
        processes, printed, number = list[subprocess.Popen[bytes]](), [], next(_COUNT)
        for rank in range(self.topology.device_count):
            path = self.folder / f"{number}-rank{rank}"
            with path.open("wb") as output:
                to = None if rank in shown else output
                processes.append(subprocess.Popen(
                    ["ip", "netns", "exec", self.namespace(rank), *command], stdin=subprocess.DEVNULL, stdout=to,
                    stderr=to, env={**os.environ, **self.environment(rank), **(environment or {})},
                    start_new_session=True,
                ))  # fmt: skip
            printed.append(path)
        return Running(tuple(processes), tuple(printed))

    def run(
        self, command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> list[Ended]:
        """Start the command for every rank, wait until all have ended; no process is left then."""
        running = self.start(command, environment)
        try:
            return running.wait(timeout_s)
        finally:
            running.kill()


@contextmanager
def emulated_cluster(
    topology: Topology,
    total_bytes_per_s: float = TOTAL_BYTES_PER_S,
    scale: float | None = None,
    takes_signals: bool = True,
) -> Iterator[Cluster]:
    """A cluster like a topology, with its bandwidths scaled so that all ranks send at most so much at once.

    `scale`: instead. `takes_signals`: TERM and HUP unwind the block, too; False where the program sees to them.
    Raises `RunError` with what `ip` or `tc` says where they fail.
    """
    remove_left_over()
    if scale is None:
        scale = total_bytes_per_s / sent_at_once(topology)
    emulated = scaled(topology, scale, ALPHA_S)
    name = f"{PREFIX}{os.getpid()}-{next(_COUNT)}"
    unwound = _ended_by_signals() if takes_signals else nullcontext()
    with unwound, tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        try:
            build(emulated, name)
            yield Cluster(emulated, scale, name, Path(folder))
        finally:
            remove(one for one in namespaces() if one.startswith(f"{name}-"))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """TERM and HUP unwind the block, as Ctrl-C does; in the main thread, which is the one that gets signals."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    with suppress(ValueError):
        before = {number: signal.signal(number, unwind) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
