"""Small questions of every system, and what their plan files hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from compression_traces import small_trace
from hand_training import chain

from gapless.profiles.compression.trace import write_compression_trace
from gapless.profiles.training.graph_file import write_training_graph

Question = dict[str, str]

TRACE = {"trace": "zipf", "table_rows": "40,300", "examples": "64", "trainers": "2", "batch_size": "8"}
UNIFORM = {"profile": "uniform:f=10,b=12,w=8", "ranks": "3", "micro_batches": "6", "hop": "2"}
SPARSE = {"indices": "clustered:elements=4000,steps=2", "ranks": "4", "density": "0.02"}
HEADS = "synthetic:layers=3,heads=8"
CACHED = {"profile": "synthetic:layers=3,heads=4,dimension=16", "cache": "0.3x"}
TRACED = {"trace": "trace.npz"}
NETWORK = {"ranks": "8", "bandwidth": "10Gbps"}

QUESTIONS: dict[str, list[Question]] = {
    "taccl": [
        {"topology": "ring:4", "size": "1MB"},
        {"topology": "ring:4", "size": "1MB", "chunks": "2"},
        {"topology": "ring:4", "collective": "allreduce", "size": "1KB", "chunks": "1"},
        {"topology": "hypercube:2", "collective": "reducescatter", "size": "1MB", "chunks": "1", "seed": "3"},
        {"topology": "mesh:2x2", "collective": "broadcast", "size": "64KB", "root": "2", "chunks": "1"},
        {"topology": "ring:3", "collective": "alltoall", "size": "1MB", "chunks": "1"},
        {"topology": "ndv2", "nodes": "2", "sketch": "ndv2-sk-1", "collective": "allgather", "size": "1MB"},
        {"topology": "ring:5", "collective": "gather", "size": "5KB", "method": "milp", "chunks": "1"},
        {"topology": "ring:4", "collective": "scatter", "size": "1.5MB", "path_slack": "0.5", "gap": "0.1"},
        {"topology": "line:3", "collective": "sendrecv", "root": "0", "target": "2", "size": "1MB", "chunks": "4"},
    ],
    "monet": [
        *(
            {"graph": "chain.json", "budget": budget, "gap": "0"}
            for budget in ("0.5x", "0.7x", "0.8x", "0.9x", "1x", "2x", "20")
        ),
        {"graph": "unet", "batch": "4", "device": "p100", "budget": "0.5x", "gap": "0.05"},
        {"graph": "vgg16", "batch": "32", "device": "p100", "budget": "0.6x", "gap": "0.05", "threads": "1"},
        {"graph": "mobilenet_v2", "batch": "64", "device": "p100", "budget": "0.5x", "gap": "0.05"},
    ],
    "cupcake": [
        {"profile": "resnet50"},
        {"profile": "resnet50", "method": "buckets"},
        {"profile": "resnet101"},
        {"profile": "bert-base", "method": "layer-wise"},
        {"profile": "gpt2"},
        {"profile": "vgg16", "method": "milp"},
        {"profile": "vgg16", "method": "pareto"},
        {"profile": "resnet50", "compressor": "powersgd", **NETWORK},
        {"profile": "resnet50", "compressor": "dgc", **NETWORK, "latency": "5us"},
        {"profile": "bert-base", "compressor": "fp16", "topology": "ndv2", "device": "a100"},
    ],
    "chai": [
        {"profile": HEADS, "kv_saving": "0.2"},
        {"profile": HEADS, "kv_saving": "0.4"},
        {"profile": HEADS, "kv_saving": "0.2", "distance": "scores"},
        {"profile": HEADS, "kv_saving": "0.3", "method": "uniform"},
        {"profile": HEADS, "kv_saving": "0.3", "method": "elbow"},
        {"profile": HEADS, "kv_saving": "0.3", "method": "random", "seed": "3"},
        {"profile": f"{HEADS},key_heads=4", "kv_saving": "0.25"},
        {"profile": f"{HEADS},seed=4", "kv_saving": "0.3", "context": "4096", "batch": "8"},
        {"profile": f"{HEADS},dimension=64", "kv_saving": "0.3", "device": "v100", "element_bytes": "4"},
        {"profile": HEADS, "kv_saving": "0"},
    ],
    "cache": [
        CACHED,
        {**CACHED, "cache": "0.15x", "tokens": "8192", "batch": "4"},
        {**CACHED, "modes": "formats"},
        {**CACHED, "cache": "0.7x", "modes": "sharing,windows", "measure": "loss"},
        {**CACHED, "cache": "0.5x", "method": "int4"},
        {**CACHED, "cache": "0.8x", "method": "share"},
        {**CACHED, "cache": "0.6x", "method": "window", "device": "v100"},
        {**CACHED, "method": "random", "seed": "3"},
        {**CACHED, "profile": "synthetic:layers=3,heads=8,key_heads=4,dimension=16,seed=4", "element_bytes": "4"},
        {**CACHED, "cache": "1x"},
    ],
    "bagpipe": [
        TRACE,
        {**TRACE, "batches": "3"},
        {**TRACE, "lookahead": "2", "design": "partitioned"},
        {**TRACE, "ownership": "hash"},
        {**TRACE, "method": "milp"},
        {**TRACE, "method": "random", "seed": "3"},
        {**TRACE, "trace_seed": "5", "exponent": "1.2"},
        {**TRACE, "model": "deepfm", "dimension": "16", "latency": "10us"},
        {**TRACE, "objective": "fetches"},
        {**TRACE, "objective": "max-load", "cache_rows": "200"},
    ],
    "oktopk": [
        SPARSE,
        {**SPARSE, "objective": "mean"},
        {**SPARSE, "method": "averaged"},
        {**SPARSE, "method": "exact", "density": "0.05"},
        {**SPARSE, "method": "joint", "bandwidth": "1Gbps"},
        {**SPARSE, "selection": "all", "latency": "1us"},
        {**SPARSE, "held_out": "1"},
        {**SPARSE, "indices": "uniform:elements=2000,steps=2", "ranks": "5"},
        {**SPARSE, "indices": "drifting:elements=3000,steps=4,seed=3", "ranks": "8", "topology": "ndv2"},
        {**SPARSE, "indices": "clustered:elements=4000,steps=2", "topology": "ring:4"},
    ],
    "pipeline": [
        {**UNIFORM, "in_flight": "4"},
        {**UNIFORM, "in_flight": "5"},
        {**UNIFORM, "method": "zb-h2"},
        {**UNIFORM, "backward": "whole"},
        {**UNIFORM, "ranks": "2", "micro_batches": "2", "placement": "v", "in_flight": "2"},
        {**UNIFORM, "ranks": "2", "micro_batches": "2", "placement": "looped", "chunks": "2", "seed": "3"},
        {**UNIFORM, "micro_batches": "9", "method": "search"},
        {**UNIFORM, "memory": "2.5GB", "recomputation": "all"},
        {"profile": "gpt-2.5b", "ranks": "3", "micro_batches": "4", "bandwidth": "200Gbps", "replicas": "4"},
        {**UNIFORM, "profile": "uniform:f=1.5,b=1.25,w=0.75", "micro_batches": "12", "in_flight": "6"},
    ],
    "sharding": [
        {"instance": "drawn:nodes=12,choices=3"},
        {"instance": "drawn:nodes=12,choices=3,seed=1,tightness=90"},
        {"instance": "drawn:nodes=16,choices=3,seed=2,tightness=0"},
        {"instance": "drawn:nodes=16,choices=4,seed=3,tightness=95"},
        {"instance": "drawn:nodes=20,choices=3,seed=4", "seed": "3"},
        {"instance": "drawn:nodes=2,choices=1"},
        {"instance": "drawn:nodes=24,choices=2,seed=5", "gap": "0.9"},
        {"instance": "drawn:nodes=24,choices=3,seed=6,tightness=100"},
        {"instance": "drawn:nodes=30,choices=3,seed=7,tightness=70"},
        {"instance": "drawn:nodes=30,choices=2,seed=8,tightness=50"},
    ],
    "ranks": [
        {**TRACED, "data": "0.5x"},
        {**TRACED, "data": "20Kfloats"},
        {**TRACED, "data": "0.5x", "phases": "epoch"},
        {**TRACED, "data": "0.5x", "phases": "epoch", "switches": "1"},
        {**TRACED, "data": "0.6x", "phases": "epoch", "switches": "2", "method": "milp"},
        {**TRACED, "data": "0.6x", "phases": "epoch", "method": "random", "seed": "3"},
        {**TRACED, "data": "0.6x", "phases": "epoch", "method": "first-epochs"},
        {**TRACED, "data": "0.9x", "modes": "powersgd:1,powersgd:4", "method": "constant"},
        {**TRACED, "step_time": "5.2ms", "workers": "4", "bandwidth": "100Mbps"},
        {**TRACED, "step_time": "5.2ms", "workers": "4", "bandwidth": "100Mbps", "data": "0.6x", "phases": "epoch"},
    ],
}


def content(path: Path) -> Any:
    """All that a plan file holds but how it was made."""
    if path.suffix == ".json":
        data = json.loads(path.read_text(encoding="utf-8"))
        return {name: json.dumps(section) for name, section in data.items() if name != "run"}
    with np.load(path) as archive:
        texts = {name: json.loads(archive[name].tobytes()) for name in ("meta", "end", "made")}
        arrays = {name: archive[name].tobytes() for name in archive if name not in texts}
    sections = {name: section for text in texts.values() for name, section in text.items() if name != "run"}
    return arrays | {name: json.dumps(section) for name, section in sections.items()}


def write_inputs(folder: Path) -> None:
    """The files that the questions name."""
    write_training_graph(folder / "chain.json", chain(6))
    write_compression_trace(folder / "trace.npz", small_trace())


def as_words(question: Question) -> list[str]:
    """The question as options of the command line."""
    return [word for name, value in question.items() for word in (f"--{name.replace('_', '-')}", value)]
