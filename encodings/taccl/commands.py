"""The commands of TACCL: the sweep over sizes, a run, a profile of links, with their help."""

from __future__ import annotations

from gapless.answering import asking
from gapless.encodings.taccl.programs import profiling, running
from gapless.encodings.taccl.question import LinksQuestion, RunQuestion, StepQuestion, SweepQuestion
from gapless.encodings.taccl.sweep import run, step
from gapless.encodings.taccl.tuning import tune
from gapless.encodings.taccl.tuning.question import TuneQuestion
from gapless.lazy import lazy
from gapless.options import SolveOptions
from gapless.question import fields_of
from gapless.system import Command

__all__ = ["LINKS", "RUN", "STEP", "SWEEP", "TUNE"]

_SWEEP_HELP = """\
A size is that of the larger of one rank's two buffers, as the runtimes compare it with minBytes and maxBytes. Every
size gets a plan of its own and an even share of the time limit. Then every plan is tried at every size, with every
number of instances and in pieces, beside ring, tree, doubling, direct and hierarchical algorithms. The fastest serves
the size. The folder gets xml/ with one program for each range of sizes, the plans, and the table as summary.csv and
summary.json. The same command again goes on with the sizes that have no plan yet, or would get more time now.
Ctrl-C ends the synthesis and chooses from what is there.

`gapless plot DIR/summary.json` draws the table.

exit codes: 0 every size has its plan and is served, 2 bad input, 4 some have no plan yet or nothing can be lowered

example:
  gapless sweep taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather \\
      --min-size 1KB --max-size 1GB --factor 4 --time-limit 120 -o allgather
  gapless sweep taccl --topology dgx2 --nodes 2 --sketch dgx2-sk-1,dgx2-sk-2,auto --time-limit 1200 -o dgx2
"""

_RUN_HELP = """\
Every rank is a process of this machine, over gloo: the times are those of its memory and loopback, unless the machine
is made to be like the plan's. The result is compared with the collective's definition, number by number.

Under torchrun, or any launcher that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, it is one of the
ranks; rank 0 prints. A plan is refused where the library's own algorithm is predicted to be faster, unless --anyway.

With --model a model is trained twice instead, from one start and on data of each rank's own. Its gradients are summed
by the plan, an ALLREDUCE, and by the library, in buckets of the plan's size. Losses must be equal but for rounding.
With --tuned the winners of `gapless tune` sum them in the place of one plan, and the library the buckets that none won.

exit codes: 0 the result is right, 2 bad input, or a process failed, 5 it is wrong

example:
  gapless run taccl --plan plan.json
  gapless run taccl --plan plan.json --model train:gpt,layers=2 --steps 20
  gapless run taccl --tuned tuned --model train:net,layers=5
  torchrun --nproc-per-node 4 -m gapless run taccl --plan plan.json --backend nccl -o measured.json
"""

_LINKS_HELP = """\
Measures alpha and beta of every link, finds out which ranks share a NIC, a port or a bus, and writes a --topology-file
for as many ranks. Ranks are processes of this machine, or those that a launcher such as torchrun has started.

n chunks of s bytes take n (alpha + beta s) in turn, and alpha + n beta s at once. Both costs are fitted robustly to
flows of several n and s. What ranks share is found by latency, bandwidth, and links that slow each other.

exit codes: 0 the file is written, 2 bad input, or a process failed, 4 the time was over before the structure was known

example:
  gapless profile links --ranks 4 -o machine.json
  torchrun --nproc-per-node 8 --no-python gapless profile links --backend nccl -o machine.json
"""

_STEP_HELP = """\
Estimates a step's time with the plans that serve a sweep's sizes, and with rings and trees as libraries have them.
Between the sizes of a sweep times lie on lines; beyond them nothing is known, and the size is named. Without --sweep,
what the step needs is swept first, on --topology, within the time limit.

Layers wait for their own collectives. Buckets of gradients are sent beside the backward pass, one after the other. What
sending takes from the device, the optimiser and the loader of data are left out.

example:
  gapless advise step --step transformer-xl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --batch 1,4,16 -o swept
  gapless advise step --step transformer-xl --sweep swept/allreduce --batch 2,8
"""

_TUNE_HELP = """\
Measures the links between the ranks, and makes a plan for every collective, group and size. Plans, rings, trees and the
like then run in turn with the library. A plan wins a size where it beats the library by more than the library differs
from itself, in two measurements.

The folder gets the winners' plans, the table (table.txt, table.json), selector.json and the measured topology. What
MSCCL and MSCCL++ can have of it lies there too.

`gapless.torch.collectives.install(DIR)` makes torch.distributed take the winners, and the library for all else.

Ranks are processes of this machine, or those that a launcher such as torchrun has started, or `gapless emulate`. The
time limit is for the links and all plans together; running the plans comes besides.

exit codes: 0 the folder is written, 2 bad input, or a process failed, 5 a plan's result was wrong

example:
  gapless tune --ranks 3 --collectives allreduce --sizes 64KB,1MB --profile-time 10 --time-limit 20 -o tuned
  torchrun --nproc-per-node 8 --no-python gapless tune --backend nccl --groups all+0-3 -o tuned
"""

STEP = Command(
    "step", "a training step with a sweep's plans, beside rings and trees", fields_of(StepQuestion),
    asking(StepQuestion, lazy(lambda: step.answer_step)), _STEP_HELP, SolveOptions(time_limit_s=120.0, gap=0.05),
    "choosing from the plans so far",
)  # fmt: skip
SWEEP = Command(
    "taccl", "one collective for a range of sizes: a program for each, beside the usual algorithms",
    fields_of(SweepQuestion), asking(SweepQuestion, lazy(lambda: run.answer)), _SWEEP_HELP,
    SolveOptions(time_limit_s=600.0, gap=0.05), "choosing from the plans so far; the same command goes on",
)  # fmt: skip
RUN = Command(
    "taccl", "a plan between processes of this machine, beside the library's own collective", fields_of(RunQuestion),
    asking(RunQuestion, lazy(lambda: running.execute)), _RUN_HELP, when_stopped="ending the processes",
    is_launched=True,
)  # fmt: skip
LINKS = Command(
    "links", "alpha and beta of links, and what ranks share, as a topology file", fields_of(LinksQuestion),
    asking(LinksQuestion, lazy(lambda: profiling.profile_links)), _LINKS_HELP,
    when_stopped="ending with what is known", is_launched=True,
)  # fmt: skip
TUNE = Command(
    "tune", "measure links, plan, and keep the plans that beat the library, for torch.distributed to take",
    fields_of(TuneQuestion), asking(TuneQuestion, lazy(lambda: tune.tune)), _TUNE_HELP,
    SolveOptions(time_limit_s=120.0, gap=0.05), "ending with what is known", is_launched=True,
)  # fmt: skip
