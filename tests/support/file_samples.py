"""What a small file of each format holds, every field of it in use."""

from __future__ import annotations

from typing import Any

from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate

FOUR = NodeTemplate(
    "four", 4, switches=(SwitchTemplate((0, 1, 2, 3), 1e-6, 1e-11),),
    nics=(NicTemplate((0, 1), 2e-6, 1e-10), NicTemplate((2, 3), 2e-6, 1e-10)),
)  # fmt: skip
"""The machine that the sketch is for."""

SWEEP: dict[str, Any] = {
    "format": "gapless.sweep", "version": 1, "grid": [
        {"system": "monet", "graph": "vgg16", "batch": [2, 4], "budget": ["0.6x", "1GB"], "gap": 0.05, "seed": 3},
        {"system": "cupcake", "profile": ["resnet50", "vgg16"], "method": "auto", "time_limit": 5},
        {"system": "bagpipe", "trace": "zipf", "table_rows": "40,300", "exponent": 1.5, "trainers": 2, "batch_size": 8},
    ],
}  # fmt: skip
OWN: dict[str, Any] = {
    "format": "gapless.topology", "version": 1, "name": "four", "ranks_per_node": 4, "source": "made up",
    "links": [
        {"from": 0, "to": 1, "alpha_us": 0.7, "beta_us_per_mb": 46, "both_ways": True, "resources": ["bus"]},
        {"from": 2, "to": 3, "alpha_us": 0.7, "beta_us_per_mb": 46, "both_ways": True},
        {"from": 1, "to": 2, "alpha_us": 0, "beta_us_per_mb": 46.5, "both_ways": True},
    ],
    "switches": [{"ranks": [0, 1, 2, 3], "alpha_us": 0.7, "beta_us_per_mb": 8}],
    "nics": [
        {"ranks": [0, 1], "alpha_us": 2, "beta_us_per_mb": 100},
        {"ranks": [2, 3], "alpha_us": 2, "beta_us_per_mb": 9},
    ],
    "fabric": {"rails": True, "nodes_per_leaf": 1, "uplinks_per_leaf": 2, "alpha_us": 0.3, "beta_us_per_mb": 40},
}  # fmt: skip
TACCL: dict[str, Any] = {
    "name": "mine_1KB", "gpus_per_node": 2, "alpha": 30, "links": [[0, 1], [2, 0]], "betas": [[0, 4], [8, 0]],
    "invbws": [[0, 34], [38, 0]], "nics_per_node": 1, "remote_invbw": 270, "remote_alpha": 260, "remote_beta": 10,
}  # fmt: skip
KNOWN: dict[str, Any] = {
    "name": "NDv2_1MB", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3, "node_betas_list": [23, 46],
    "node_invbws_list": [23, 46], "remote_invbw": 107, "remote_alpha": 2.6, "remote_beta": 105,
}  # fmt: skip
SKETCH: dict[str, Any] = {
    "nnodes": 2,
    "intranode_sketch": {
        "strategy": "switch", "switches": [[0, 1, 2, 3]], "switch_hyperedge_strategy": ["uc-min"],
    },
    "internode_sketch": {
        "strategy": "relay", "internode_conn": {"1": [0], "3": [2]}, "beta_split": {"1": 1, "3": 1},
        "gpus_to_sender_rev_map": {"1": [0, 1], "3": [2, 3]}, "enforce_ordering": True,
    },
    "symmetry_offsets": [[4, 8]],
    "hyperparameters": {"input_chunkup": 1, "input_size": "1MB"},
}  # fmt: skip
WAY: dict[str, Any] = {"duration_s": 0.001, "workspace_bytes": 64, "name": "gemm", "power_w": 200.0}
GRAPH: dict[str, Any] = {
    "format": "gapless.training-graph", "version": 1, "name": "tiny", "batch": 2, "fixed_bytes": 4096,
    "source": "made up",
    "forward": [
        {"name": "conv", "op": "conv", "output_bytes": 1024, "inputs": [], "ways": [WAY, {**WAY, "duration_s": 0.002}]},
        {
            "name": "relu", "op": "relu_", "output_bytes": 1024, "inputs": [0], "ways": [WAY], "again": [WAY],
            "overwrites": 0, "in_place": [{"duration_s": 0.001, "workspace_bytes": -1024, "power_w": 1}],
        },
        {"name": "bits", "op": "bits", "output_bytes": 32, "inputs": [1], "ways": [WAY], "creator": 1},
        {"name": "loss", "op": "loss", "output_bytes": 4, "inputs": [1], "ways": [{"duration_s": 0, "power_w": 0}]},
    ],
    "backward": [
        {
            "name": "relu_grad", "op": "relu_grad", "forward": 1, "output_bytes": 1024, "gradients": [3],
            "variants": [{"name": "output", "needs": [1], "ways": [WAY]}, {"needs": [2], "ways": [WAY]}],
            "fixed_bytes": 4096,
        },
        {
            "name": "conv_grad", "op": "conv_grad", "forward": 0, "output_bytes": 0, "gradients": [4],
            "variants": [{"needs": [], "ways": [WAY]}], "fixed_bytes": 8192,
        },
    ],
}  # fmt: skip


def _node(number: int, kind: str, op: str, args: list[list[int]], **fields: Any) -> dict[str, Any]:
    ways = {"workspace_mib": [0.0] * len(args), "compute_ms": [0.011] * len(args)}
    ways |= {name: fields.pop(name) for name in tuple(ways) if name in fields}
    every = {f"{prefix}{name}": values for prefix in ("", "recompute_", "inplace_") for name, values in ways.items()}
    base = {"id": number, "kind": kind, "op": op, "args": args, "mem_bytes": 1000, "fixed_mem_bytes": 1500}
    return {**base, **every, **fields}


MEASURED: dict[str, Any] = {
    "model": "small", "batch": 2, "loss": 3, "num_fwd_with_intermediates": 3, "conv_list": [0, 5],
    "select_conv_algo": True, "do_inplace": True, "inplace_of": {"1": 0},
    "nodes": [
        _node(0, "fwd", "conv", [[]], compute_ms=[1.0, -1000, 0.5], workspace_mib=[0.0, 0.0, 0.0005]),
        _node(1, "fwd", "relu", [[0]], inplace_workspace_mib=[-0.001], recompute_compute_ms=[0.02]),
        _node(2, "int", "mask", [[1]], parent=1, mem_bytes=10),
        _node(3, "loss", "loss", [[1]]),
        _node(4, "bwd", "relu_ip", [[0, 3], [2, 3]], fwd_id=1, compute_ms=[1.0, 2.0], workspace_mib=[0.0, 1.0]),
        _node(5, "bwd", "conv_param", [[4]], fwd_id=0, fixed_mem_bytes=3000, compute_ms=[1.0], workspace_mib=[0.0]),
    ],
}  # fmt: skip
