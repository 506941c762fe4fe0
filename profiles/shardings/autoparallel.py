"""Questions that Meta's AutoParallel made of models, as instances of the contest, and its own answers to them.

`autoparallel-gpt2-12-2x2`: GPT-2 with 12 layers on a mesh of 2 x 2 devices, 8 sequences of 64 tokens.
`autoparallel-vit-12-2x2`: ViT-B/16 with 12 layers, 8 images. All costs are AutoParallel's own estimates for H100s, in
picoseconds. Equal layers are one node each. Usage is the share of a parameter that a device holds, in whole parts, and
the limit is that of AutoParallel's example: all shares together are what they are where each parameter is divided
among all devices. See docs/comparisons/sharding.md.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

__all__ = ["SHIPPED", "PeerAnswer", "autoparallel_answer", "shipped_instance"]

SHIPPED = ("autoparallel-gpt2-12-2x2", "autoparallel-vit-12-2x2")
"""The names."""
_FOLDER = "gapless.profiles.shardings"


@dataclass(frozen=True)
class PeerAnswer:
    """What AutoParallel's ILP came to, by CBC. `choices`: of each node, counted from 0; `objective_us`: as CBC said it.

    `binaries`, `rows`: of its model. Processor seconds of one core, with PyTorch 2.13: `options_cpu_s` for the layouts
    of all operators, `model_cpu_s` for costs and rows, `solver_cpu_s` for CBC.
    """

    choices: tuple[int, ...]
    objective_us: float
    binaries: int
    rows: int
    options_cpu_s: float
    model_cpu_s: float
    solver_cpu_s: float


def shipped_instance(name: str) -> AbstractContextManager[Path]:
    """The file of an instance, which is there as long as the context is."""
    return as_file(files(_FOLDER) / f"{name}.json.gz")


def autoparallel_answer(name: str) -> PeerAnswer:
    """What AutoParallel answered to a shipped instance."""
    values = json.loads((files(_FOLDER) / "autoparallel.json").read_text(encoding="utf-8"))["instances"][name]
    return PeerAnswer(tuple(values.pop("choices")), **values)
