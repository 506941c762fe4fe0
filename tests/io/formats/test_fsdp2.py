"""Files of FSDP2 wrappings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Group, Fsdp2Wrapping, read_fsdp2, write_fsdp2

WRAPPING = Fsdp2Wrapping(
    "three", ("embedding", "block", "head"), (8, 4, 8),
    (Fsdp2Group(0, 0, False, "bf16", "fp32", (1,)), Fsdp2Group(1, 2, True, "bf16", "fp32", (), (0,), "hybrid")), 2, 8,
)  # fmt: skip


def test_a_wrapping_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_fsdp2(tmp_path / "w.json", WRAPPING)
    assert read_fsdp2(tmp_path / "w.json") == WRAPPING


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda data: data["groups"][0].update(layers=["block"]), "groups: must have all layers"),
        (
            lambda data: data["groups"][0].update(forward_prefetch=["head"]),
            "must be first layers of groups, got 'head'",
        ),
        (lambda data: data["groups"][1].update(gather="fp8"), "FSDP2 has fp32 and bf16, got fp8"),
        (
            lambda data: data.update(torchtitan_buckets=[["embedding"]]),
            "torchtitan_buckets: must be the groups' layers",
        ),
        (lambda data: data.update(scatters_in_flight=0), "scatters_in_flight"),
        (lambda data: data["layers"][0].update(parameters=-1), "parameters"),
        (lambda data: data.update(version=2), "version"),
        (lambda data: data["groups"][0].update(sharding="zero"), "sharding: must be one of full, secondary, hybrid"),
        (lambda data: data["groups"][1].update(sharding="secondary"), "secondary goes with reshard_after_forward"),
        (lambda data: data.update(ranks_per_node=1), "hybrid goes with ranks_per_node above 1"),
        (lambda data: data["layers"][2].update(name="block"), "must"),
    ],
)
def test_what_is_no_wrapping_is_refused(tmp_path: Path, change: Any, rule: str) -> None:
    path = tmp_path / "w.json"
    write_fsdp2(path, WRAPPING)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=rule) as refused:
        read_fsdp2(path)
    assert str(refused.value).startswith(str(path))
