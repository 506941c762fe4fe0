"""The command that runs a plan of layouts."""

from __future__ import annotations

from gapless.answering import asking
from gapless.encodings.sharding.execution import running
from gapless.encodings.sharding.execution.question import RunQuestion
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.system import Command

__all__ = ["RUN"]

_HELP = """\
Runs the model's training step by the plan's layouts, over gloo, in a process for each device of the mesh. The same
steps run in one process, on the same numbers. Losses by step, and each process's parts of the first step's gradients,
are compared. So are the bytes that each process sends: with the plan's, and with what the kernel counts on its
connections. The most memory that each process needs stands beside the plan's.

With --bandwidth, processes wait in each collective until a ring of this bandwidth is through with it. The step is then
predicted: processor time without collectives, and the rings' times. Under torchrun it runs among the processes that
are there, on several machines too.

exit codes: 0 all are equal, 2 bad input, or a process failed, 5
something differs

example:
  gapless run sharding --plan plan.json
  gapless run sharding --plan plan.json --bandwidth 20MB/s,100MB/s --latency 1ms
"""

RUN = Command(
    "sharding", "a model's step by planned layouts, on processes, beside one process", fields_of(RunQuestion),
    asking(RunQuestion, lazy(lambda: running.execute)), _HELP, when_stopped="ending the processes", is_launched=True,
)  # fmt: skip
