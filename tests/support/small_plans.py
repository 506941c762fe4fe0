"""A small plan file of each system, as its own command writes it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from compression_traces import small_trace
from hand_training import chain

from gapless.cli.main import main
from gapless.profiles.compression.trace import write_compression_trace
from gapless.profiles.training.graph_file import write_training_graph

SYSTEMS = ("taccl", "monet", "bagpipe", "cupcake", "oktopk", "pipeline", "cache", "chai", "ranks", "sharding")


def solve_command(system: str, folder: Path) -> list[str]:
    """The arguments of the command that makes the plan `small_plan` returns."""
    graph = folder / "chain.json"
    arguments = {
        "taccl": ["--topology", "ndv2", "--nodes", "2", "--sketch", "ndv2-sk-1", "--size", "1MB"],
        "monet": ["--graph", str(graph), "--budget", "45B", "--time-limit", "2"],
        "bagpipe": [
            *["--trace", "zipf", "--table-rows", "50,400", "--examples", "300"],
            *["--trainers", "4", "--batch-size", "30", "--lookahead", "3"],
        ],
        "cupcake": ["--profile", "resnet50", "--modes", "compress"],
        "oktopk": ["--indices", "clustered:elements=5000,steps=2", "--ranks", "4", "--density", "0.02"],
        "cache": ["--profile", "synthetic:layers=3,heads=6,dimension=16", "--cache", "0.3x"],
        "chai": ["--profile", "synthetic:layers=3,heads=6", "--kv-saving", "0.25"],
        "pipeline": [
            *["--profile", "uniform:f=10,b=12,w=8", "--ranks", "3", "--micro-batches", "4"],
            *["--hop", "2", "--in-flight", "3"],
        ],
        "sharding": ["--instance", "drawn:nodes=12,choices=3"],
        "ranks": ["--trace", str(folder / "trace.npz"), "--data", "0.5x", "--phases", "epoch"],
    }[system]
    if system == "monet":
        write_training_graph(graph, chain(6))
    if system == "ranks":
        write_compression_trace(folder / "trace.npz", small_trace())
    return ["solve", system, *arguments, "-o", str(folder / f"plan.{'npz' if system == 'bagpipe' else 'json'}")]


def small_plan(system: str, folder: Path) -> Path:
    """The plan's path in `folder`, as the command writes it there; the same question is solved once in a process."""
    command = solve_command(system, folder)
    plan = Path(command[-1])
    if plan.suffix == ".json":
        text, elsewhere = _solved(system)
        plan.write_text(text.replace(elsewhere, str(folder)), encoding="utf-8")
    else:
        assert main([*command, "--quiet"]) == 0
    return plan


@cache
def _solved(system: str) -> tuple[str, str]:
    """The text of a system's plan file, and the folder that it was written to."""
    with tempfile.TemporaryDirectory() as folder:
        command = solve_command(system, Path(folder))
        assert main([*command, "--quiet"]) == 0
        return Path(command[-1]).read_text(encoding="utf-8"), folder
