"""The table of docs/taccl.md: an ALLREDUCE of 1 GB by switches that add up, on one and eight nodes, with SHARP."""

from __future__ import annotations

from dataclasses import replace

import gapless
from gapless.topologies.files import named_node
from gapless.topologies.ports.switch_groups import Reduction

SHARP = Reduction(reduces_to_all=True, alpha_s=3.4e-6, beta_s_per_byte=20e-12)


def main() -> None:
    """Bound, plan and method of each machine, and the bound of plain transfers."""
    node = named_node("dgx-h100")
    sharp = replace(node, fabric=replace(node.fabric, reduction=SHARP))
    for name, machine in (("8 ranks", node.cluster(1)), ("64 ranks", node.cluster(8)), ("SHARP", sharp.cluster(8))):
        asked = {"topology": machine, "collective": "allreduce", "size": "1GB"}
        found = gapless.taccl.solve(**asked)
        plain = gapless.taccl.solve(**asked, no_switch_reduction=True)
        times = [found.solution.bound, found.report.makespan_s, plain.solution.bound]
        print(name, *(f"{1e3 * time_s:.3f} ms" for time_s in times), found.details["provenance"]["method"])


if __name__ == "__main__":
    main()
