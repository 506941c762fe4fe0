"""Sharding: a layout for every operator over a mesh of devices, under a limit on memory."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.sharding.instances.instance import Instance, read_instance
    from gapless.encodings.sharding.problem import Problem

__all__ = ["Instance", "Problem", "read_instance"]

__getattr__ = names_of(__name__, {
    "instances.instance": ("Instance", "read_instance"),
    "problem": ("Problem",),
})  # fmt: skip
