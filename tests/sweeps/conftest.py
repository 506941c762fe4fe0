"""A small sweep: two fusions, and two training steps of which one fits into no memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fusion_instances import known_instance
from hand_training import chain

from gapless.profiles.gradients.profile_file import fusion_profile_text
from gapless.profiles.training.graph_file import write_training_graph


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`small.json`, in the current folder; the result of an instance takes no more than a moment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.json").write_text(fusion_profile_text(known_instance()))
    write_training_graph(tmp_path / "chain.json", chain(6))
    (tmp_path / "little.toml").write_text("least_budget_steps = 100\n")
    grids = [
        {"system": "cupcake", "profile": "profile.json", "method": ["pareto", "one-group"]},
        {"system": "monet", "graph": "chain.json", "budget": ["2.5x", "20"], "parameters": "little.toml"},
    ]
    return sweep_file(tmp_path, *grids)


def sweep_file(folder: Path, *grids: dict[str, Any]) -> Path:
    """A sweep file of these grids."""
    path = folder / "small.json"
    path.write_text(json.dumps({"format": "gapless.sweep", "version": 1, "grid": list(grids)}))
    return path


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    """Makes a sweep file of the grids that it is given."""
    return lambda *grids: sweep_file(tmp_path, *grids)
