"""Measured training graphs and the schedules that a commercial solver found for them, where they are at hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import read_training_graph

ROOT = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "monet"
FAILED_MS = -1000


@dataclass(frozen=True)
class Reference:
    """A schedule from the files: `objective` in 0.01 ms, as the file says."""

    graph: TrainingGraph
    decisions: Decisions
    budget_bytes: int
    objective: int


@pytest.fixture(scope="session")
def measured() -> Callable[[str], TrainingGraph]:
    """The reader of measured instances by name, such as `vgg16_176_inplace_normal`; skips without the files."""
    _require_data()
    return _instance


@pytest.fixture(scope="session")
def reference() -> Callable[[str], Reference]:
    """The reader of reference schedules by name, such as `vgg16_176_inplace_normal_8.00`; skips without the files."""
    _require_data()
    return _reference


def reference_names() -> list[str]:
    """All reference schedules of MONeT's own form, sorted; empty without the files."""
    names = (path.name.removesuffix(".json.gz") for path in ROOT.glob("reference/*.json.gz"))
    return sorted(name for name in names if not name.startswith("checkmate"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that asks for `reference_name` on all of them, or once, to be skipped, without the files."""
    if "reference_name" in metafunc.fixturenames:
        metafunc.parametrize("reference_name", reference_names() or ["none"])


def _require_data() -> None:
    if not ROOT.is_dir():
        pytest.skip("the measured instances of MONeT (shared/data/monet beside the checkout) are not here")


@cache
def _instance(name: str) -> TrainingGraph:
    return read_training_graph(ROOT / "instances" / f"{name}.json.gz")


def _reference(name: str) -> Reference:
    record = _json(ROOT / "reference" / f"{name}.json.gz")
    instance = _json(ROOT / "instances" / f"{record['instance']}.json.gz")
    graph = _instance(record["instance"])
    recomputed = _dense(record["r"])
    variant = _dense(record["m"])[1:].argmax(axis=1)
    algorithm = _algorithms(record, instance)
    backward_implementation = algorithm[
        np.arange(1, len(recomputed)), np.arange(len(graph.forward), len(instance["nodes"]))
    ]
    decisions = Decisions(
        stored=_dense(record["s"]),
        recomputed=recomputed,
        in_place=_dense(record["ip"]) & recomputed,
        forward_implementation=np.where(recomputed, algorithm[:, : len(graph.forward)], 0),
        variant=variant,
        backward_implementation=backward_implementation,
    )
    return Reference(graph, decisions, int(record["budget_gb"] * 2**30), round(record["runtime_expected"]))


def _algorithms(record: dict[str, Any], instance: dict[str, Any]) -> NDArray[np.int64]:
    """The chosen implementation of each node at each stage, int64, shape (T, nodes); 0 where there is no choice.

    The files number all slots for algorithms, a graph only those that did not fail.
    """
    chosen = np.zeros((record["r"]["shape"][0], len(instance["nodes"])), dtype=np.int64)
    if not instance["select_conv_algo"]:
        return chosen
    slots = _dense(record["rf"])
    for column, node in enumerate(instance["conv_list"]):
        usable = [time_ms != FAILED_MS for time_ms in instance["nodes"][node]["compute_ms"]]
        impl = np.cumsum(usable) - 1
        picked = slots[:, column].argmax(axis=1)
        ran = slots[:, column].any(axis=1)
        chosen[ran, node] = impl[picked[ran]]
    return chosen


def _json(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return record


def _dense(sparse: dict[str, Any]) -> NDArray[np.bool_]:
    dense = np.zeros(sparse["shape"], dtype=np.bool_)
    if sparse["ones"]:
        dense[tuple(np.array(sparse["ones"]).T)] = True
    return dense
