"""What is imported on first use: modules of a system's package, and the functions that its `System` refers to."""

from __future__ import annotations

import subprocess
import sys

LIGHT = """
import sys
from gapless.system import known_system, system_names
systems = [known_system(name) for name in system_names()]
heavy = {"networkx", "matplotlib", "torch", "highspy", "ortools"} & set(sys.modules)
assert not heavy, heavy
solvers = [name for name in sys.modules if name.startswith("gapless.encodings.") and name.endswith(".solve")]
assert not solvers, solvers
"""
STAND_IN = """
import sys
from gapless.encodings.chai import solve
assert "gapless.encodings.chai.solve" not in sys.modules
assert callable(solve.solve)
assert "gapless.encodings.chai.solve" in sys.modules
import gapless.encodings.chai.solve
assert solve.__dict__ is sys.modules["gapless.encodings.chai.solve"].__dict__
solve.changed = 1
assert gapless.encodings.chai.solve.changed == 1
del solve.changed
assert not hasattr(gapless.encodings.chai.solve, "changed")
import gapless.encodings.chai
assert not hasattr(gapless.encodings.chai, "nothing_of_this_name")
"""


def passes(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_system_is_known_without_what_solves_it() -> None:
    passes(LIGHT)


def test_a_module_is_imported_when_something_of_it_is_asked_for() -> None:
    passes(STAND_IN)
