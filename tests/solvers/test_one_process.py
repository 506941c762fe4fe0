"""The solver libraries live in one process, whichever is loaded first (see the version pins in pyproject.toml)."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model

SOLVERS = ("highs", "cpsat", "pulp", "pulp:HiGHS", "min_cost_flow")

PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
import numpy as np
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import load_backend, solve_model
model = Model("assignment")
does = model.binaries("does", (4, 4))
model.add("worker", (1, does), lower=1, upper=1)
model.add("job", (1, does.T), lower=1, upper=1)
model.minimize((np.arange(16).reshape(4, 4) % 5, does), offset=1.0)
for _ in range(2):
    for solver in sys.argv[1:]:
        load_backend(solver)
    for solver in sys.argv[1:]:
        print(solver, solve_model(model, SolveOptions(threads=2), solver).objective)
"""


def test_all_backends_run_in_one_process() -> None:
    model = Model("choice")
    take = model.binaries("take", 4)
    model.add("one", (1, take), lower=1, upper=1)
    model.minimize((np.array([3, 1, 2, 5]), take))
    for solver in (*SOLVERS, *reversed(SOLVERS)):
        assert solve_model(model, SolveOptions(threads=1), solver).objective == 1


@pytest.mark.thorough(but=("highs-cpsat-pulp",))
@pytest.mark.parametrize("order", [*itertools.permutations(("highs", "cpsat", "pulp"))], ids="-".join)
def test_any_order_of_loading_works(order: tuple[str, ...]) -> None:
    names = [name for solver in order for name in ((solver, "pulp:HiGHS") if solver == "pulp" else (solver,))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:-1] == [f"{name} 1.0" for name in names] * 2


def test_listing_the_backends_imports_none_of_them() -> None:
    program = (
        "import sys; from gapless.solvers.registry import backends; backends();"
        "print({'highspy', 'ortools', 'pulp', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "set()"
