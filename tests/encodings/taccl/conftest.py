"""The published cases, where the reference data are beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gapless.encodings.taccl import Chunked, read_sketch
from gapless.topologies.files import read_node

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "taccl"


@pytest.fixture
def published(tmp_path: Path) -> Callable[..., Chunked]:
    """A published profile and sketch as a problem: (profile file, sketch, size of a rank's input, collective)."""
    if not DATA.is_dir():
        pytest.skip(f"the published profiles are not at {DATA}")
    profiles = json.loads((DATA / "taccl_profiles.json").read_text())["profiles"]
    sketches = json.loads((DATA / "taccl_sketches.json").read_text())["sketches"]

    def build(profile: str, sketch: str, input_bytes: int, collective: str = "allgather") -> Chunked:
        values = next(entry["values"] for entry in profiles if entry["file"] == profile)
        (tmp_path / profile).write_text(json.dumps(values))
        (tmp_path / f"{sketch}.json").write_text(json.dumps(sketches[sketch]))
        parsed = read_sketch(tmp_path / f"{sketch}.json")
        topology = read_node(tmp_path / profile).cluster(parsed.node_count or 1)
        return Chunked.of(topology, collective, input_bytes, parsed)

    return build
