"""What a schedule has of an optimiser whose states, or whose gradients, travel: tensors, by the copies of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.encodings.monet.offload.copies import Copy
from gapless.errors import InputError
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.optimizer import Updates

__all__ = ["Updating", "updating"]


@dataclass(frozen=True)
class _State:
    """States that travel: the tensor before their update, after which comes the one after it."""

    tensor: int
    size_bytes: int
    lives_on_host: bool


@dataclass(frozen=True)
class Updating:
    """The states and gradients that travel, by backward node, in a graph of so many nodes.

    `resident_bytes`: the states that don't. `gradients`: the tensors of those that travel.
    """

    forward: int
    backward: int
    states: dict[int, _State]
    gradients: dict[int, int]
    resident_bytes: int
    are_applied: bool

    @property
    def moving(self) -> list[int]:
        """The backward nodes for whose updates something travels, in order."""
        return sorted({*self.states, *self.gradients})

    def gradient(self, backward: int) -> int:
        """The tensor of a backward node's parameter gradients."""
        return 1 + self.forward + self.backward + backward

    def state_tensors(self, backward: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The states before and after their update, nothing where they stay."""
        state = self.states.get(backward)
        return ((), ()) if state is None else ((state.tensor,), (state.tensor + 1,))

    def tensors(self, copy: Copy) -> tuple[int, int]:
        """What goes out and what comes back."""
        late = copy.node - self.forward
        if late < 0:
            return 1 + copy.node, 1 + copy.node
        if late >= self.backward:
            return self.gradient(late - self.backward), self.gradient(late - self.backward)
        state = self.states[late]
        return state.tensor + state.lives_on_host, state.tensor


def updating(graph: TrainingGraph, copies: Sequence[Copy], updates: Updates | None) -> Updating:
    """Raises `InputError` where copies are of an optimiser that isn't there."""
    count, others = len(graph.forward), len(graph.backward)
    late = {copy.node - count: copy for copy in copies if copy.node >= count}
    if updates is None:
        if late:
            raise InputError(f"decisions: copies of an optimiser's states must be of a step that has one, got {late}")
        return Updating(count, others, {}, {}, 0, False)
    first, states = 1 + count + 2 * others, dict[int, _State]()
    for b in sorted(b for b in late if b < others):
        states[b] = _State(first + 2 * len(states), updates.states_bytes[b], late[b].lives_on_host)
    gradients = {b - others: 1 + count + b for b in late if b >= others}
    if updates.are_applied and gradients:
        raise InputError("decisions: gradients that are applied in the backward pass can't travel")
    resident_bytes = updates.total_bytes - sum(state.size_bytes for state in states.values())
    return Updating(count, others, states, gradients, resident_bytes, updates.are_applied)
