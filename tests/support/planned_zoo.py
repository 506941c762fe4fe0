"""The zoo of planned models: `python tests/support/planned_zoo.py [MODEL ...]`.

Each model trains three steps, eager's and planned, in a process of its own, on one thread: `row` measures one,
`rows` all that are asked for. A model is planned at 0.6 of what it takes without a plan, or at the least that a plan
was found for. Ends with exit code 1 where bits differ or something other than one line comes out.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import torch
from zoo_cases import Case
from zoo_packages import DIFFUSERS, TIMM, TRANSFORMERS
from zoo_sequences import SEQUENCES
from zoo_tables import TABLES
from zoo_vision import VISION

from gapless import SolveOptions
from gapless.errors import InputError
from gapless.torch import planned
from gapless.torch.devices import measure_peak

__all__ = ["DIFFERS", "MODELS", "NAMES", "cells", "counts", "is_close", "row", "rows"]

Row: TypeAlias = dict[str, str | float | int | None]
MODELS: dict[str, Callable[[], Case]] = {**VISION, **SEQUENCES, **TABLES, **TRANSFORMERS, **TIMM, **DIFFUSERS}
"""How each is made, by name."""
HALF = (
    "ResNet", "ConvNeXt, channels last", "Vision transformer", "UNet", "GPT", "DLRM", "GPT-2", "Llama", "BERT", "T5",
)  # fmt: skip
"""Those that run under autocast to bfloat16 as well; their names end in `, bf16`."""
NAMES = (*MODELS, *(f"{name}, bf16" for name in HALF))
"""Of the table's rows."""

DIFFERS = {"RNN-T": 1e-6, "timm regnety_002": 5e-6}
"""Those with tensors off by last bits, since sums come in another order, and how far off each may be, of its norm.
RNN-T has eager's bits with both of its GRU layers as islands. The other differs in some runs only, with a plan of the
same peak."""

SHARES = ("0.6x", "0.8x", "1.0x")
"""The first is what is wanted, the others are for models of which no least is known."""
LIMIT_S, PATIENCE_S = 2.0, 400.0
_LEAST = re.compile(r"a plan was found for (\d+)")


class Trained:
    """A model in a plain loop, under autocast where asked."""

    def __init__(self, case: Case, is_half: bool) -> None:
        self.case, self.model, self.is_half = case, case.model.train(), is_half

    def loss(self) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
            return self.case.loss(self.model(*self.case.arguments, **self.case.named))

    def step(self, seed: int) -> torch.Tensor:
        """A forward and a backward pass; gradients are anew."""
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        loss = self.loss()
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad


def made(name: str) -> Trained:
    plain = name.removesuffix(", bf16")
    torch.manual_seed(0)
    return Trained(MODELS[plain](), plain != name)


def row(name: str, steps: int = 3, timed: int = 7, limit_s: float = LIMIT_S) -> Row:
    """What came of a model: `captured` is "yes", or the line of its refusal, or of what should have been one."""
    try:
        eager, ours = made(name), made(name)
    except (ImportError, AttributeError) as error:
        return {"model": name, "captured": f"not installed: {error}"}
    begin_s, lines = time.process_time(), []
    try:
        budget = _planned(ours, limit_s, lines.append)
        seconds = time.process_time() - begin_s
        off = differences(eager, ours, steps)
    except InputError as error:
        return {"model": name, "captured": f"refused: {error}"}
    except Exception as error:  # whatever it is, it is a row
        return {
            "model": name,
            "captured": f"traceback: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}",
        }
    plan = ours.model.__dict__["forward"].plans[-1]
    assert plan.result is not None
    own, peak = _peak(eager), _peak(ours)
    ratio = _ratio(eager, ours, timed)
    return {
        "model": name, "captured": "yes", "bit_equal": "yes" if not off else ", ".join(list(off)[:3]),
        "off": max(off.values(), default=0.0),
        "loss": "inside" if ours.case.is_inside else "outside",
        "eager_KB": round(own / 1e3, 1), "measured_KB": round(peak / 1e3, 1),
        "plan_KB": round(plan.peak_bytes / 1e3, 1),
        "budget_KB": round(budget / 1e3, 1),
        "predicted": round(float(str(plan.result.details["overhead"])), 3), "measured": round(ratio - 1, 3),
        "plan_s": round(seconds, 1),
    }  # fmt: skip


def _planned(ours: Trained, limit_s: float, report: Callable[[str], None]) -> int:
    """Plan a model's call; the bytes of its budget."""
    options = SolveOptions(time_limit_s=limit_s, gap=0.02, threads=1)
    plain, shares = ours.model.__dict__.copy(), list(SHARES)
    budget: str | int = shares.pop(0)
    while True:
        planned(ours.model, budget, options=options, report=report)
        try:
            ours.step(0)
        except InputError as error:
            least = _LEAST.search(str(error))
            if "no plan" not in str(error) or not shares:
                raise
            budget = int(1.02 * int(least[1])) if least else shares.pop(0)
            ours.model.__dict__.clear()
            ours.model.__dict__.update(plain)
        else:
            return int(ours.model.__dict__["forward"].plans[-1].result.problem.budget_bytes)


def differences(eager: Trained, ours: Trained, steps: int) -> dict[str, float]:
    """What isn't equal bit by bit between eager's training of a model and the planned one, from the same weights.

    Returns how far each loss, gradient, weight and buffer is off, of its norm: see `distance`.
    """
    ours.model.load_state_dict(eager.model.state_dict())
    apart = {}
    for seed in range(steps):
        apart[f"loss {seed}"] = distance(*(its.step(seed) for its in (eager, ours)))
        pairs = zip(eager.model.named_parameters(), ours.model.parameters(), strict=True)
        apart |= {f"{label} {seed}": distance(one.grad, other.grad) for (label, one), other in pairs}
        eager.update()
        ours.update()
    pairs = zip(eager.model.state_dict().items(), ours.model.state_dict().values(), strict=True)
    apart |= {f"{label} at the end": distance(one, other) for (label, one), other in pairs}
    return {label: off for label, off in apart.items() if off}


def distance(one: torch.Tensor | None, other: torch.Tensor | None) -> float:
    """The norm of the difference of two tensors over the first's norm; 0 where all bits are equal.

    Infinite where only one is there, where shapes differ, and where a norm isn't finite or is zero.
    """
    if one is None or other is None or one.shape != other.shape:
        return 0.0 if one is other else math.inf
    if torch.equal(one, other):
        return 0.0
    off = float((other.double() - one.double()).norm() / one.double().norm())
    return off if math.isfinite(off) else math.inf


def is_close(found: Row) -> bool:
    """Whether a captured model has eager's bits, or is off by no more than `DIFFERS` lets it."""
    return found["bit_equal"] == "yes" or float(str(found["off"])) <= DIFFERS.get(str(found["model"]), 0.0)


def _peak(its: Trained) -> int:
    its.model.zero_grad(set_to_none=True)
    return measure_peak(lambda: its.loss().backward(), torch.device("cpu"))[0]


def _ratio(eager: Trained, ours: Trained, timed: int) -> float:
    """Processor time of planned steps over eager's, the median of pairs that follow each other."""
    ratios = []
    for seed in range(timed):
        taken = []
        for its in (eager, ours):
            begin_s = time.process_time()
            its.step(seed)
            taken.append(time.process_time() - begin_s)
        ratios.append(taken[1] / taken[0])
    return statistics.median(ratios)


def rows(names: Iterable[str]) -> Iterator[Row]:
    """Each model's row, made in a process of its own that has an end."""
    for name in names:
        command = [sys.executable, str(Path(__file__).absolute()), "--row", name]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            yield json.loads(ended.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            yield {"model": name, "captured": f"traceback: not finished after {PATIENCE_S:g} s"}
        except (IndexError, json.JSONDecodeError):
            yield {"model": name, "captured": f"traceback: {(ended.stderr.strip().splitlines() or ['no word'])[-1]}"}


def cells(found: Row) -> Row:
    """A row as the table has it, peaks and overheads together."""
    if found["captured"] != "yes":
        return {"model": found["model"], "captured": str(found["captured"]).split("; ")[0]}
    peaks = " / ".join(str(found[f"{what}_KB"]) for what in ("measured", "plan", "budget"))
    overheads = " / ".join(f"{100 * float(str(found[what])):.0f} %" for what in ("predicted", "measured"))
    return {
        "model": found["model"], "captured": "yes",
        "bit_equal": "yes" if found["bit_equal"] == "yes" else f"off by {found['off']:.1e}",
        "loss": found["loss"], "eager": found["eager_KB"], "measured / plan / budget": peaks,
        "overhead": overheads, "plan_s": found["plan_s"],
    }  # fmt: skip


def counts(found: Iterable[Row]) -> dict[str, int]:
    """How many models came to what."""
    texts = [(str(each["captured"]), each.get("bit_equal") == "yes") for each in found]
    kinds = ("yes", "refused", "traceback", "not installed")
    counted = {kind.replace(" ", "_"): sum(text.startswith(kind) for text, _ in texts) for kind in kinds}
    return {"captured": counted.pop("yes"), "bit_equal": sum(is_equal for _, is_equal in texts), **counted}


def main(arguments: list[str]) -> int:
    torch.set_num_threads(1)
    if arguments[:1] == ["--row"]:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            found = row(arguments[1])
        print(json.dumps(found))
        return 0
    all_rows = []
    for each in rows(arguments or NAMES):
        all_rows.append(each)
        print("  ".join(f"{key} {value}" if key != "model" else f"{value}:" for key, value in each.items()), flush=True)
    print(", ".join(f"{kind} {count}" for kind, count in counts(all_rows).items()))
    is_fine = all(not str(each["captured"]).startswith("traceback") for each in all_rows)
    are_equal = all(each["captured"] != "yes" or is_close(each) for each in all_rows)
    return 0 if is_fine and are_equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
