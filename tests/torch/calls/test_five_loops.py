"""The loops of docs/how-to/loops.md, 50 steps each: the planned ones print eager's losses, to the last digit.

Each needs its libraries: the extra `trainers` has those of two.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from loop_pairs import LOOPS, printed

NEEDS = {"trainer": ("transformers", "accelerate"), "lit": ("lightning",)}
ROUNDING = 1e-4


def losses(lines: list[str]) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in lines]


@pytest.mark.thorough
@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "compiled"])
def test_fifty_steps_have_eagers_losses(loop: str) -> None:
    if missing := [name for name in NEEDS.get(loop, ()) if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed; pip install '.[trainers]' in a checkout")
    processes = 2 if loop == "ddp" else 0
    before, _ = printed(f"{loop}.py", processes)
    after, said = printed(f"{loop}_planned.py", processes)
    assert len(before) >= 50
    assert after == before
    assert re.search(r"gapless: planned a call of \[.*\]: at most [\d.]+ [KM]B", said)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor makes its kernels for a CPU with g++")
def test_fifty_compiled_steps_have_the_losses_within_rounding_and_a_second_run_takes_the_plans(tmp_path: Path) -> None:
    from torch._dynamo import list_backends

    if "gapless" not in list_backends():
        pytest.skip("the backend has its name by installing the package")
    before, _ = printed("compiled.py", kernels=tmp_path)
    after, said = printed("compiled_planned.py", kernels=tmp_path)
    assert len(re.findall(r"^gapless: a graph of .*: at most [\d.]+ [KM]B, recomputes", said, re.MULTILINE)) == 2
    assert len(before) == 50
    assert losses(after) == pytest.approx(losses(before), rel=ROUNDING)
    again, said = printed("compiled_planned.py", kernels=tmp_path)
    assert again == after
    assert said.count("gapless: took a compiled graph of PyTorch's cache") == 2
    assert "gapless: a graph of" not in said
