"""What a fusion plan decides, and the buckets of PyTorch's DistributedDataParallel (DDP) that it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from gapless.decision import Decision
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets
from gapless.io.record import Record
from gapless.io.typed import Stored, located
from gapless.profiles.gradients.fusion import Fusion

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["FusionDecision", "to_ddp_buckets"]


@dataclass(frozen=True)
class FusionDecision(Decision):
    """`groups`: (first, last) gradient of each, both inclusive, in ready order. `modes[i]`: the name of the mode in
    which group i is sent; none where an old plan doesn't say.

    Raises `InputError` for groups that leave gradients out, and for modes that aren't one for each group.
    """

    groups: Annotated[tuple[tuple[int, int], ...], Stored(each="[first, last] in whole numbers")]
    modes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        first = 0
        for number, group in enumerate(self.groups):
            if group[0] != first or group[1] < first:
                raise InputError(f"groups[{number}]: must be [{first}, last] with last >= {first}, got {list(group)}")
            first = group[1] + 1
        if not first:
            raise InputError("groups: must be at least one, got none")
        if self.modes and len(self.modes) != len(self.groups):
            raise InputError(f"modes: must be one for each of {len(self.groups)} groups, got {len(self.modes)}")

    @classmethod
    def of_fusion(cls, fusion: Fusion) -> FusionDecision:
        """For the plan file."""
        return cls(fusion.groups, fusion.modes)

    @property
    def fusion(self) -> Fusion:
        """As time lines take it."""
        return Fusion(tuple(last + 1 for _, last in self.groups), self.modes)


def to_ddp_buckets(plan: SavedPlan, where: str = "plan") -> DdpBuckets:
    """The buckets of a fusion plan.

    Raises `InputError` naming `where` and the field, also where DDP can't reproduce the plan's groups.
    """
    asked, decision = Record(dict(plan.problem), f"{where}: problem"), FusionDecision.of(plan, where)
    if asked.integer("pieces_bytes", 1, default=None) is not None:
        raise InputError(f"{where}: problem: pieces_bytes: DDP keeps every gradient whole; solve without pieces")
    profile, sizes = asked.text("profile"), asked.integers("tensor_bytes", 0)
    names = tuple(_name(asked, number, name) for number, name in enumerate(asked.array("tensor_names")))
    with located(where):  # the buckets name the field, not the file
        return DdpBuckets(profile, names, sizes, decision.groups, decision.modes)


def _name(record: Record, number: int, name: object) -> str:
    if not isinstance(name, str):
        raise record.fail(f"tensor_names[{number}]", "a string", name)
    return name
