"""How many more steps training takes in each mode than with plain gradients, on one small model.

`pytest tests/benchmarks/test_compressor_steps.py --tables FOLDER` writes the table, which
`gapless.encodings.cupcake.commands.steps_to_loss` holds. What is asserted is that it does.
"""

from __future__ import annotations

import math

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from virtual_ranks import steps_beside_plain

from gapless.encodings.cupcake.commands.steps_to_loss import STEPS

_ROUNDING = 0.05
"""Machines round sums otherwise, which tips a look at the loss by some steps."""


@pytest.mark.usefixtures("takes_minutes", "one_thread")
@pytest.mark.parametrize("mode", STEPS)
def test_steps(mode: str, tables: ResultTables) -> None:
    found = steps_beside_plain(mode)
    tables.table("compressor_steps", "Steps to a loss beside plain gradients").add(mode, steps=f"{found:.2f}")
    assert found == pytest.approx(STEPS[mode], rel=_ROUNDING) or found == STEPS[mode] == math.inf
