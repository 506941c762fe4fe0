"""The commands of TACCL: the sweep over sizes, a run, a profile of links, with their options and help."""

from __future__ import annotations

from gapless.encodings.taccl.programs import profiling, running
from gapless.encodings.taccl.question import SKETCH, Question, sketch_names
from gapless.encodings.taccl.sweep import run
from gapless.io.formats.ef_options import LOWERING
from gapless.lazy import lazy
from gapless.options import MOST_SECONDS, SolveOptions
from gapless.question import picked
from gapless.question.fields import Bandwidth, Choice, Field, Flag, Listed, Number, Seconds, Size, Text, Whole
from gapless.system import Command

__all__ = ["LINKS", "RUN", "SWEEP"]

_SWEEP = (
    *picked(Question, "topology", "topology_file", "nodes"),
    Field(
        "sketch", Listed(SKETCH),
        "shipped sketches, and auto for a search; each size is planned under each of them", metavar="NAME,NAME,...",
        names=sketch_names,
    ),
    Field("sketch_file", Text(), "one more sketch, in TACCL's format", metavar="FILE"),
    *picked(Question, "collective"),
    Field("min_size", Size(), "the smallest size", 1000, metavar="SIZE"),
    Field("max_size", Size(), "the largest size", 10**9, metavar="SIZE"),
    Field("factor", Whole(2), "factor between sizes", 4, metavar="N"),
    Field("sizes", Listed(Size()), "these sizes, instead of a range", metavar="SIZE,SIZE,..."),
    Field(
        "parts", Listed(Whole(1, 64)), "into how many parts chunks are cut, each of them tried",
        otherwise="1,2, and without a sketch the best number", metavar="N,N,...",
    ),
    Field(
        "tolerance", Number(0), "a plan serves a size if it is at most (1 + T) times as slow as the fastest ",
        0.0, metavar="T",
    ),
    Field(
        "output", Text(), "folder for programs, plans and the table", is_required=True, metavar="DIR", short="-o"
    ),
    Field(
        "instances", Listed(Whole(1, 64)),
        "numbers of instances to choose from", (1, 2, 4, 8), metavar="N,N,...",
        group="instances",
    ),
    Field(
        "block_bandwidth", Bandwidth(),
        "bandwidth of a thread block", 20e9, metavar="B", group="instances"
    ),
    Field(
        "alpha_growth", Number(0), "part of a link's alpha that each further instance adds", 0.05,
        metavar="G", group="instances",
    ),
    *(field for field in LOWERING if field.name in ("proto", "placement", "runtime")),
)  # fmt: skip

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

_BACKENDS = ("gloo", "nccl", "mpi")

_RUN = (
    Field("plan", Text(), "the plan to run, a file", is_required=True, metavar="FILE"),
    Field(
        "backend",
        Choice(_BACKENDS),
        "of torch.distributed; nccl: each rank on the GPU of its place on the machine; mpi: started by its launcher",
        "gloo",
    ),
    Field("repeats", Whole(1, 10**4), "calls of the plan, and of the library, in turn", 9, metavar="N"),
    Field("wait", Seconds(), "the longest that a rank waits for another", 60.0, metavar="T"),
    Field(
        "output", Text(), "where to write what was measured; `report --measured` takes it", metavar="FILE", short="-o"
    ),
    Field("without_turns", Flag(), "don't let ranks take what they share in turn", False),
    Field("anyway", Flag(), "run a plan that the library is predicted to be faster than", False),
)
_RUN_HELP = """\
Every rank is a process of this machine, over gloo: the times are those of its memory and loopback, unless the machine
is made to be like the plan's. The result is compared with the collective's definition, number by number.

Under torchrun, or any launcher that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, it is one of the
ranks; rank 0 prints. A plan is refused where the library's own algorithm is predicted to be faster, unless --anyway.

exit codes: 0 the result is right, 2 bad input, or a process failed, 5 it is wrong

example:
  gapless run taccl --plan plan.json
  torchrun --nproc-per-node 4 -m gapless run taccl --plan plan.json --backend nccl -o measured.json
"""

_LINKS = (
    Field("ranks", Whole(2, 1024), "processes", otherwise="2; a launcher has started its own", metavar="P"),
    Field("backend", Choice(_BACKENDS), "of torch.distributed: gloo, nccl, mpi", "gloo"),
    Field(
        "sizes", Listed(Size()), "of chunks", otherwise="8 bytes, and what a link carries in 25, 12 and 6 ms",
        metavar="SIZE,SIZE,...",
    ),
    Field("by", Choice(("class", "pair")), "a cost for each class of links, or each pair in a node", "class"),
    Field(
        "precision", Number(0, strict=True, maximum=1), "the half of a 95 % interval, as a share of the cost, that is "
        "small enough", 0.03, metavar="P",
    ),
    Field(
        "time_limit", Number(0, strict=True, maximum=MOST_SECONDS),
        "seconds for all of it; what is known then is written", 60.0, metavar="S",
    ),
    Field("relabel", Flag(), "number the ranks of each node anew, those near the NIC first", False),
    Field("wait", Seconds(), "the longest that a rank waits for another", 60.0, metavar="T"),
    Field("output", Text(), "the topology file to write", is_required=True, metavar="FILE", short="-o"),
)  # fmt: skip
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

SWEEP = Command(
    "taccl", "one collective for a range of sizes: a program for each, beside the usual algorithms", _SWEEP,
    lazy(lambda: run.answer), _SWEEP_HELP, SolveOptions(time_limit_s=600.0, gap=0.05),
    "choosing from the plans so far; the same command goes on",
)  # fmt: skip
RUN = Command(
    "taccl", "a plan between processes of this machine, beside the library's own collective", _RUN,
    lazy(lambda: running.execute), _RUN_HELP, when_stopped="ending the processes", is_launched=True,
)  # fmt: skip
LINKS = Command(
    "links", "alpha and beta of links, and what ranks share, as a topology file", _LINKS,
    lazy(lambda: profiling.profile_links), _LINKS_HELP, when_stopped="ending with what is known", is_launched=True,
)  # fmt: skip
