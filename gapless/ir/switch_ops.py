"""SwitchOps: which transfers of a schedule are one operation of a switch that adds up or multicasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError

__all__ = ["SwitchOps", "refuse_switch_ops"]


@dataclass(frozen=True)
class SwitchOps:
    """`of_event`: int64 of shape (events,), the operation that each event is a part of, -1 for none. `group`: int64 of
    shape (operations,), a number into `Topology.switch_groups`.

    An operation is a multicast (one rank to all others), a reduction (all others to one, which adds), or a reduction to
    all (each of them to each other one, which adds). Its transfers move the same tensors and start and end together.
    """

    of_event: NDArray[np.int64]
    group: NDArray[np.int64]

    def __post_init__(self) -> None:
        for title in ("of_event", "group"):
            values = np.asarray(getattr(self, title))
            if values.ndim != 1 or not (np.issubdtype(values.dtype, np.integer) or not len(values)):
                raise InputError(f"schedule: switch_ops: {title} must be a list of integers")
            object.__setattr__(self, title, values.astype(np.int64, copy=False))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SwitchOps):
            return NotImplemented
        return np.array_equal(self.of_event, other.of_event) and np.array_equal(self.group, other.group)

    __hash__ = None  # type: ignore[assignment]


def refuse_switch_ops(switch_ops: SwitchOps | None, what: str) -> None:
    """Raises `InputError` for a plan with operations of switches, which `what` has no way to carry out."""
    if switch_ops is not None and len(switch_ops.group):
        got = len(switch_ops.group)
        raise InputError(
            f"{what}: plans must only send, got {got} operations of switches that add up or multicast; plan again with "
            "--no-switch-reduction"
        )
