"""ALLGATHERV of Zipf-skewed bytes: `python tests/support/unequal_gathers.py [NETWORK ...]`, in a checkout.

For each network its plan over its bound, and CPU seconds; without arguments for those of the page, in some two minutes.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import gapless

CASES = {
    "torus:4x4, 1 MB": ("torus:4x4", None, 16, 10**6),
    "torus:4x4, 8 MB": ("torus:4x4", None, 16, 8 * 10**6),
    "2 x NDv2, 1 MB": ("ndv2", 2, 16, 10**6),
    "2 x NDv2, 8 MB": ("ndv2", 2, 16, 8 * 10**6),
    "2 x DGX H100, 8 MB": ("dgx-h100", 2, 16, 8 * 10**6),
    "8 x DGX H100, 8 MB": ("dgx-h100", 8, 64, 8 * 10**6),
}
"""Machine, nodes, ranks, bytes of a rank on the mean."""


def main(names: list[str]) -> None:
    for name in names or CASES:
        machine, nodes, ranks, mean_bytes = CASES[name]
        weight = np.random.default_rng(0).permutation(1 / np.arange(1, ranks + 1))
        own = (weight / weight.sum() * ranks * mean_bytes).astype(int).reshape(1, -1)
        begin_s = time.process_time()
        plan = gapless.taccl.solve(machine, nodes=nodes, collective="allgatherv", matrix=own)
        cpu_s = time.process_time() - begin_s
        print(f"{name:<20} {plan.data['ratio']:.3f} {cpu_s:6.1f} CPU s  {plan.details['method']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
