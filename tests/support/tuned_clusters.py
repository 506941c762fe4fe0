"""The tables of docs/how-to/tune.md: `gapless tune` on four emulated clusters, and a training with the winners.

Needs root, and some minutes.

`python tests/support/tuned_clusters.py [CLUSTER ...]`, in a checkout; a cluster as the table names it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emulated_cluster import Cluster, emulated_cluster
from emulated_machines import one_cable, uneven_ring
from emulated_ranks import TIMEOUT_S

from gapless.io.formats.tuned_file import TABLE, read_table
from gapless.topologies import node
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Topology

COMMAND = (
    "tune", "--collectives", "allreduce,reducescatter", "--sizes", "64KB,256KB", "--repeats", "3",
    "--profile-time", "30", "--time-limit", "42", "--hopeless", "1.2",
)  # fmt: skip

TRAINING = ("run", "taccl", "--model", "train:net,layers=5", "--steps", "10", "--json")


def unlike_nodes() -> Topology:
    """Nodes of 3, 2 and 1 ranks behind a switch, with cables whose bandwidths are like 2, 4 and 1."""
    kinds = []
    for ranks, speed_gbs in ((3, 12.5), (2, 25.0), (1, 6.25)):
        all_ranks = tuple(range(ranks))
        switches = (SwitchTemplate(all_ranks, 1e-6, 1e-11),) if ranks > 1 else ()
        nics = (NicTemplate(all_ranks, 2e-6, 1e-9 / speed_gbs),)
        kinds.append(NodeTemplate(f"{ranks} ranks", ranks, (), switches, nics))
    return node.Cluster("3 + 2 + 1", tuple(kinds)).topology()


CLUSTERS = {
    "3 + 2 + 1": unlike_nodes,
    "uneven ring of 5": lambda: uneven_ring((12.5, 6.25, 25, 6.25, 12.5)),
    "2 x 3": lambda: one_cable(2, 3),
    "2 x 2": lambda: one_cable(2, 2),
}


def main(names: list[str]) -> None:
    """A row for each collective and size of each cluster, and one for the training."""
    for name in names or list(CLUSTERS):
        with tempfile.TemporaryDirectory() as folder, emulated_cluster(CLUSTERS[name]()) as cluster:
            tuned = Path(folder) / "tuned"
            _printed(name, cluster, (*COMMAND, "-o", str(tuned)))
            for row in read_table(tuned / TABLE).rows:
                plan = "-" if row.plan_s is None else f"{1e3 * row.plan_s:.1f} ms, {row.ratio or 0:.3f}"
                serves = "library" if row.winner is None else "plan"
                predicted = "-" if row.predicted_s is None else f"predicted {1e3 * row.predicted_s:.1f} ms"
                times = f"{1e3 * row.library_s:.1f} ms, noise {100 * row.noise:.1f} %, plan {plan}, {predicted}"
                print(name, row.collective, row.size_bytes, times, serves, sep=" | ", flush=True)
            said = _printed(name, cluster, (*TRAINING, "--tuned", str(tuned)))
            trained = json.loads(said[said.index("{") :])
            steps = f"{1e3 * trained['library_step_s']:.1f} ms, with winners {1e3 * trained['plan_step_s']:.1f} ms"
            who = f"plans sum {trained['taken']} of {trained['taken'] + trained['left']} buckets"
            print(name, f"step by gloo {steps}, losses apart {trained['apart']:.1e}", who, sep=" | ", flush=True)


def _printed(name: str, cluster: Cluster, words: Sequence[str]) -> str:
    """What rank 0 prints of a command of gapless; what it says ends all where it fails."""
    ended = cluster.run([sys.executable, "-m", "gapless", *words], TIMEOUT_S)
    if any(one.code for one in ended):
        sys.exit(f"{name}: {ended[0].out}")
    return ended[0].out


if __name__ == "__main__":
    main(sys.argv[1:])
