"""The operations of one block, with a `nop` wherever its threads have to meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gapless.io.mscclpp.program import LIMITS, Operation

__all__ = ["BlockWriter"]


class BlockWriter:
    """Appends operations. Threads must meet between a wait and what relies on it, between accesses to one chunk of
    which one writes it, and between any of these and a signal, which says that they are done."""

    def __init__(self) -> None:
        self.ops: list[Operation] = []
        self.is_learning = False
        self.read: set[int] = set()
        self.written: set[int] = set()

    def meet(self) -> None:
        self.ops.append(Operation("nop"))
        self.is_learning = False
        self.read.clear()
        self.written.clear()

    def wait(self, operation: Operation) -> None:
        """Append a wait for a signal."""
        self.ops.append(operation)
        self.is_learning = True

    def acquire(self, name: str, semaphores: Sequence[int]) -> None:
        """Append the acquisition of semaphores, as many operations as it takes."""
        for operation in _by_semaphores(name, semaphores):
            self.wait(operation)

    def data(self, operation: Operation, reads: Iterable[int], writes: Iterable[int]) -> None:
        """Append what reads and writes chunks of the own GPU, by their cells in its memory."""
        reading, writing = set(reads), set(writes)
        clashes = writing & (self.read | self.written) or reading & self.written
        if self.is_learning or clashes:
            self.meet()
        self.ops.append(operation)
        self.read |= reading
        self.written |= writing

    def publish(self, operation: Operation) -> None:
        """Append what signals to others that all so far is done."""
        if self.is_learning or self.read or self.written:
            self.meet()
        self.ops.append(operation)

    def release(self, name: str, semaphores: Sequence[int]) -> None:
        """Append the release of semaphores, as many operations as it takes."""
        for operation in _by_semaphores(name, semaphores):
            self.publish(operation)


def _by_semaphores(name: str, semaphores: Sequence[int]) -> Iterable[Operation]:
    for start in range(0, len(semaphores), LIMITS.semaphores_per_operation):
        ids = tuple(semaphores[start : start + LIMITS.semaphores_per_operation])
        yield Operation(name, semaphore_ids=ids)
