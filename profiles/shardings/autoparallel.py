"""Questions that Meta's AutoParallel made of models, as instances of the contest, and its own answers to them.

`autoparallel-gpt2-12-2x2`: GPT-2 on a mesh of 2 x 2 devices, 8 sequences of 64 tokens. `autoparallel-llama-12-2x2`: a
Llama of width 512 with 8 heads, on the same. `autoparallel-vit-12-2x2`: ViT-B/16, 8 images. All have 12 layers. Costs
are AutoParallel's own estimates for H100s, in nanoseconds. Layers that it takes as equal are one node each, and each of
them pays for its own readings. Usage is the share of a parameter that a device holds, in whole parts. The limit is that
of AutoParallel's example: all shares together are what they are where each parameter is divided among all devices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

__all__ = ["SHIPPED", "PeerAnswer", "autoparallel_answer", "shipped_instance"]

SHIPPED = tuple(f"autoparallel-{model}-12-2x2" for model in ("gpt2", "llama", "vit"))
"""The names."""
_FOLDER = "gapless.profiles.shardings"


@dataclass(frozen=True)
class PeerAnswer:
    """What AutoParallel's ILP came to, by CBC. `choices`: of each node, counted from 0; `objective_us`: as CBC said it.

    `binaries`, `rows`: of its model. Processor seconds of one core, with PyTorch 2.13: `options_cpu_s` for the layouts
    of all operators, `model_cpu_s` for costs and rows, `solver_cpu_s` for CBC.

    `parameters`: the layout of each, by the name that the model has for it. `products`: shape and layout of what each
    matrix product of the forward pass gives, in order, as ("512x768", "S1,R").
    """

    choices: tuple[int, ...]
    objective_us: float
    binaries: int
    rows: int
    options_cpu_s: float
    model_cpu_s: float
    solver_cpu_s: float
    parameters: Mapping[str, str]
    products: tuple[tuple[str, str], ...]


def shipped_instance(name: str) -> AbstractContextManager[Path]:
    """The file of an instance, which is there as long as the context is."""
    return as_file(files(_FOLDER) / f"{name}.json.gz")


def autoparallel_answer(name: str) -> PeerAnswer:
    """What AutoParallel answered to a shipped instance."""
    values = json.loads((files(_FOLDER) / "autoparallel.json").read_text(encoding="utf-8"))["instances"][name]
    choices, products = tuple(values.pop("choices")), tuple((shape, layout) for shape, layout in values.pop("products"))
    return PeerAnswer(choices, products=products, **values)
