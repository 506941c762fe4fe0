"""The graphs that MONeT's authors measured and what their solver reached, for benchmarks; absent, they skip."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.study.baselines import eager
from gapless.encodings.monet.study.checkmate import Rematerialisation
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import read_training_graph

__all__ = ["DEVICE_BYTES", "FULL", "GIB", "MODES", "TITLES", "commercial", "eager_s", "measured", "reference_plans"]

ROOT = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "monet"
GIB = 2**30
DEVICE_BYTES = 16 * GIB
FULL = "inplace_conv_multiway_newnode"
MODES = {  # of the thesis, as in `ABLATIONS`, and all choices; what is measured for each, its letters in the logs
    "noop": ("inplace_normal", "i"),
    "conv": ("inplace_conv_normal", "ic"),
    "output": ("inplace_multiway", "im"),
    "intermediate": ("inplace_newnode", "in"),
    "monet": (FULL, "icmn"),
}
TITLES = {"resnet50_184": "ResNet-50", "mobilenet_v2_272": "MobileNet-V2", "un_11": "UNet", "vgg16_176": "VGG-16"}
_LOGS = {"r50": "resnet50_184", "mobilenet": "mobilenet_v2_272", "unet": "un_11", "vgg16": "vgg16_176"}


@dataclass(frozen=True)
class Commercial:
    """What the commercial solver had after at most 24 hours on twelve threads, in 0.01 ms; None where no log says."""

    best: int | None
    bound: float | None
    to_5_percent_s: float | None
    to_2_percent_s: float | None


def measured(name: str) -> TrainingGraph:
    """A measured graph by file name; skips where the files, or this one, are not there."""
    _require(ROOT / "instances" / f"{name}.json.gz")
    return _instance(name)


def eager_s(model: str) -> float:
    """Seconds of a step that keeps everything on the P100, each convolution as fast as there is room for."""
    graph = measured(f"{model}_{FULL}")
    return evaluate(graph, eager(graph, DEVICE_BYTES)).cost_s


def commercial(model: str, budget_gib: float, mode: str = "monet") -> Commercial:
    """The commercial solver's answer."""
    _require(ROOT / "gurobi_summary.json")
    return _logs().get((model, budget_gib, MODES[mode][1]), Commercial(None, None, None, None))


def reference_plans(model: str) -> dict[float, Rematerialisation]:
    """The Checkmate plans that the authors' solver found, by budget in GiB."""
    _require(ROOT / "reference")
    plans = {}
    for path in sorted(ROOT.glob(f"reference/checkmate_{model}_*.json.gz")):
        record = json.loads(gzip.decompress(path.read_bytes()))
        runs, stored = (np.zeros(record["r"]["shape"], dtype=np.bool_) for _ in "rs")
        runs[tuple(np.array(record["r"]["ones"]).T)] = True
        stored[tuple(np.array(record["s"]["ones"]).T)] = True
        plans[float(record["budget_gb"])] = Rematerialisation(runs, stored)
    return plans


def _require(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"the measured data of MONeT are not at {path}")


@cache
def _instance(name: str) -> TrainingGraph:
    return read_training_graph(ROOT / "instances" / f"{name}.json.gz")


@cache
def _logs() -> dict[tuple[str, float, str], Commercial]:
    """By model, budget and letters. The file's name tells these; its other fields have gaps."""
    found = {}
    for record in json.loads((ROOT / "gurobi_summary.json").read_text()):
        name = re.search(r"monet_(\w+?)_(i|ic|im|in|icmn)_\d+_(\d+(?:[._]5)?)", record["file"].rpartition("/")[2])
        if name is not None and name[1] in _LOGS:
            best, bound, _ = record["final"] or (None, None, None)
            key = (_LOGS[name[1]], float(name[3].replace("_", ".")), name[2])
            best = None if best is None else round(best)
            found[key] = Commercial(best, bound, record["t_gap5"], record["t_gap2"])
    return found
