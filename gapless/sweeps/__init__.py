"""Sweeps: many instances from one file, solved side by side, each with a result of its own.

The path: `sweep_file` reads the file, `instances` makes an instance of every combination, an engine (`local`, `slurm`,
`ray`) lets `solving` solve each, `results` keeps what came of it in a file named by the instance's hash, and `run`
strings these together and ends with the table, `summary`. An instance is what `gapless solve` is given.

An encoding's own sweep asks problems instead (`question`), and brings an engine that says in which order they are
solved and what each may start from: a curve over budgets, or the plans for a range of sizes. Nothing here knows of
them.
"""

from __future__ import annotations

from gapless.sweeps.instances import Instance, read_instances
from gapless.sweeps.local import Local
from gapless.sweeps.results import Row
from gapless.sweeps.run import Rows, sweep

__all__ = ["Instance", "Local", "Row", "Rows", "read_instances", "sweep"]
