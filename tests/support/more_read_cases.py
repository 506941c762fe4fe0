"""More formats that are read: arrays of every kind, machines' descriptions, the smaller files of JSON and TOML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from changed_contents import changed_bytes, changed_jsons, changed_texts
from compression_traces import small_trace
from lying_archives import changed_archives
from machine_texts import hwloc_text, matrix_text, nccl_text, table_text
from read_cases import CASES, ReadCase, command, json_maker, make_run, use_plan, use_trace, void

from gapless.io.formats.collective_file import read_collective
from gapless.io.formats.groups_file import read_groups
from gapless.io.formats.measured_file import Measured, read_measured, write_measured
from gapless.io.formats.tuned_file import Selector, Served, WinningPlan, read_selector_file, selector_text
from gapless.profiles.cache.named import find_cache_profile
from gapless.profiles.cache.profile_file import read_cache_profile, write_cache_profile
from gapless.profiles.compression.trace import read_compression_trace, write_compression_trace
from gapless.profiles.heads.named import find_head_profile
from gapless.profiles.heads.profile_file import read_head_profile, write_head_profile
from gapless.profiles.pipelines.compression import read_compression_table
from gapless.profiles.pipelines.profile import read_pipeline_profile
from gapless.profiles.sparsity.index_file import read_index_sets, write_index_sets
from gapless.profiles.sparsity.index_sets import index_sets
from gapless.profiles.steps.profile import find_training_step

LAYER: dict[str, Any] = {
    "name": "embedding", "forward_s": 0.01, "backward_s": 0, "weight_s": 0.02, "parameter_bytes": 40,
    "state_bytes": 320, "stash_bytes": 512, "boundary_bytes": 64,
}  # fmt: skip
PIPELINE: dict[str, Any] = {
    "format": "gapless.pipeline-profile", "version": 1, "name": "tiny", "embedding_bytes": 8, "boundary_shape": [8, 4],
    "layers": [LAYER, {**LAYER, "name": "head", "backward_s": 0.03}], "source": "made up",
}  # fmt: skip
ERRORS: dict[str, Any] = {
    "format": "gapless.compression-errors", "version": 1, "name": "tiny", "source": "made up", "depth": [0.25, 0.75],
    "modes": [{"name": "rank 4", "ratio": 0.1, "rank": 4, "encode_s_per_byte": 1e-11, "decode_s_per_byte": 1e-12,
               "hop_error": [0.02, 0.01], "reduce_error": [0.05, 0.04]}],
}  # fmt: skip
COLLECTIVE: dict[str, Any] = {
    "format": "gapless.collective", "version": 1, "name": "swap", "ranks": 2,
    "chunks": [{"from": [0], "to": [1]}, {"from": [1], "to": [0]}],
}  # fmt: skip
STEP: dict[str, Any] = {
    "format": "gapless.training-step", "version": 1, "name": "tiny", "source": "made up", "device": "v100",
    "layers": [{"name": "block", "count": 2, "forward_flops": 1e9, "gradient_bytes": [4096],
                "forward": [{"collective": "alltoall", "bytes": 512}]}],
}  # fmt: skip
GROUPS: dict[str, Any] = {
    "format": "gapless.groups", "version": 1,
    "groups": [{"axes": "tp=2", "collective": "alltoall", "size": "64MB"}, {"ranks": [0, 3]}],
}  # fmt: skip


def make_heads(path: Path) -> None:
    """A small profile of attention heads."""
    write_head_profile(path, find_head_profile("synthetic:layers=2,heads=4,key_heads=2,dimension=16"))


def make_cache(path: Path) -> None:
    """A small profile of a cache of keys and values."""
    write_cache_profile(path, find_cache_profile("synthetic:layers=2,heads=4,key_heads=2,dimension=16"))


def make_sets(path: Path) -> None:
    """Index sets of two steps and ranks."""
    held = [[[0, 3, 5], [3, 4, 9]], [[1, 2], [7, 8]]]
    entries = [[[1.0, -5.0, 2.0], [4.0, -3.0, 0.5]], [[1.0, 2.0], [3.0, -4.0]]]
    write_index_sets(path, index_sets(held, 10, "small", entries))


def make_measured(path: Path) -> None:
    """A measured run."""
    write_measured(path, Measured("a" * 64, "2026-01-01", "gloo", 2, 1e-3, None, (1e-3, 2e-3), (2e-3,)))


def make_selector(path: Path) -> None:
    """Which plans serve which calls."""
    served = (Served("allreduce", (0, 1), 10, 20, 0), Served("allgather", (0, 2), 10, 20, 0))
    path.write_text(selector_text(Selector("2026-01-01", "gloo", 4, (WinningPlan("0.json", "a" * 64),), served)))


def bags(layout: str) -> Callable[[Path], None]:
    """A trace of bags, in either layout."""
    lengths = np.random.default_rng(2).integers(0, 4, (30, 3))
    values = np.arange(lengths.sum()) % 17

    def make(path: Path) -> None:
        if layout == "lengths":
            np.savez_compressed(path, values=values, lengths=lengths)
        else:
            ends = np.concatenate([[0], np.cumsum(lengths.T.ravel())])
            np.savez_compressed(path, values=values, offsets=ends, keys=np.array(["a", "b", "c"]))

    return make


def make_fortran(path: Path) -> None:
    """A trace whose tables lie one after the other."""
    np.savez_compressed(path, ids=np.asfortranarray(np.random.default_rng(1).integers(0, 50, (60, 3))))


def described(text: str) -> Callable[[Path], None]:
    """Writes a machine's description."""
    return lambda path: void(path.write_text(text))


def use_description(path: Path) -> None:
    """Make a topology of it."""
    target = path.with_name("converted.json")
    rates = ("--nvlink", "25GB/s", "--pcie", "16GB/s", "--nic", "25GB/s")
    command("convert", str(path), "-o", str(target), *rates, "--quiet")
    target.unlink(missing_ok=True)


def use_table(path: Path) -> None:
    """Fit latency and bandwidth."""
    machine, target = path.with_name("smi.txt"), path.with_name("converted.json")
    machine.write_text(matrix_text(["X NV2", "NV2 X"]))
    try:
        command("convert", str(machine), "-o", str(target), "--nvlink-measured", str(path), "--quiet")
    finally:
        machine.unlink()
        target.unlink(missing_ok=True)


def use_resumed(path: Path) -> None:
    """Go on with a run."""
    sizes = ("--trainers", "3", "--batch-size", "24", "--lookahead", "2", "--batches", "6", "--examples", "200")
    target = path.with_name("resumed.npz")
    try:
        command("solve", "bagpipe", "--trace", "zipf", "--table-rows", "40,300,5", *sizes, "--resume", str(path),
                "-o", str(target), "--json", "--quiet")  # fmt: skip
    finally:
        for left in path.parent.iterdir():
            if left != path:
                left.unlink()


def use_parameters(path: Path) -> None:
    """Read the parameters of a search."""
    target = path.with_name("planned.json")
    command("solve", "cupcake", "--profile", "vgg16", "--parameters", str(path), "-o", str(target), "--json")
    target.unlink(missing_ok=True)


def _reads(read: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda path: void(read(path))


def _text(text: str) -> Callable[[Path], None]:
    return lambda path: void(path.write_text(text))


def _zoo() -> dict[str, ReadCase]:
    matrix = matrix_text(["X NV2 SYS", "NV2 X NV1", "SYS NV1 X"])
    nccl = nccl_text(4, [(0, "0000:10:00.0", 2), (1, "0000:00:00.0", 2)], 2)
    table = table_text([(2**k, 10.0 + 2**k / 1e4) for k in range(3, 20)])
    archives = {
        "cache-profile": ("cache.npz", make_cache, _reads(read_cache_profile)),
        "head-profile": ("heads.npz", make_heads, _reads(read_head_profile)),
        "index-sets": ("sets.npz", make_sets, _reads(read_index_sets)),
        "compression-trace": (
            "trace.npz", lambda path: void(write_compression_trace(path, small_trace())),
            _reads(read_compression_trace),
        ),
        "bags-lengths": ("bags.npz", bags("lengths"), use_trace),
        "bags-offsets": ("bags.npz", bags("offsets"), use_trace),
        "trace-fortran": ("trace.npz", make_fortran, use_trace),
        "run-archive": ("run.npz", make_run, use_plan),
        "run-resumed": ("run.npz", make_run, use_resumed),
    }  # fmt: skip
    jsons = {
        "pipeline-profile": (PIPELINE, read_pipeline_profile),
        "compression-errors": (ERRORS, read_compression_table),
        "collective": (COLLECTIVE, read_collective),
        "training-step": (STEP, find_training_step),
        "groups": (GROUPS, lambda path: read_groups(path, 4, "allgather", 1000)),
    }
    return {
        **{name: ReadCase(file, make, changed_archives, use) for name, (file, make, use) in archives.items()},
        **{
            name: ReadCase(f"{name}.json", json_maker(data), changed_jsons, _reads(read))
            for name, (data, read) in jsons.items()
        },
        "measured": ReadCase("measured.json", make_measured, changed_jsons, _reads(read_measured)),
        "selector": ReadCase("selector.json", make_selector, changed_jsons, _reads(read_selector_file)),
        "nvidia-smi": ReadCase("smi.txt", described(matrix), changed_bytes, use_description),
        "nccl-dump": ReadCase("nccl.xml", described(nccl), changed_texts, use_description),
        "hwloc": ReadCase("hwloc.xml", described(hwloc_text(4)), changed_texts, use_description),
        "nccl-tests": ReadCase("table.txt", described(table), changed_bytes, use_table),
        "parameters": ReadCase("tuned.toml", _text("grid_bins = [20, 200]\n"), changed_bytes, use_parameters),
    }


ALL: dict[str, ReadCase] = {**CASES, **_zoo()}
"""These, and those of `read_cases`."""
