"""Drawn questions of every system, small and full of zeros: times, sizes, hops, counts of one, nothing to send at all.

A question is what `gapless.<system>.solve` takes by name. Some make no sense and are refused, as those of people are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_training import training_graphs
from sharding_instances import random_instance

from gapless.encodings.bagpipe import question as bagpipe
from gapless.encodings.cache import question as cache
from gapless.encodings.chai import question as chai
from gapless.encodings.cupcake import question as cupcake
from gapless.encodings.oktopk import question as oktopk
from gapless.encodings.pipeline import question as pipeline
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.encodings.ranks import question as ranks
from gapless.encodings.taccl.parameters import Parameters
from gapless.ir.collective import COLLECTIVES
from gapless.profiles.cache.layout import FORMATS, MEASURES, PARTS, Layout
from gapless.profiles.cache.profile import CacheProfile
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compressors.compressor import ERRORS
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction, PointsCost
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.heads.profile import HeadProfile
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.profiles.sparsity.index_sets import index_sets
from gapless.profiles.training.graph import TrainingGraph
from gapless.question.fields import Share
from gapless.topologies.topology import Link, Topology

__all__ = ["DRAWN", "Question", "drawn_questions"]

Question = dict[str, Any]
Floats = NDArray[np.float64]

QUICK = Parameters().with_share(0.01)


def drawn_questions(system: str) -> st.SearchStrategy[Question]:
    """Questions of a system."""
    chances = st.randoms(use_true_random=False)
    if system == "monet":
        return st.builds(_monet, chances, training_graphs(4))
    return chances.map(_DRAWN[system])


def _some(chance: Random, **choices: tuple[Any, ...]) -> Question:
    """Of each field one of its values; None leaves the field out."""
    found = {name: chance.choice(values) for name, values in choices.items()}
    return {name: value for name, value in found.items() if value is not None}


def _times(chance: Random, *shape: int) -> Floats:
    """All zero, all alike, or each by itself."""
    kind = chance.choice(("none", "alike", "any"))
    if kind != "any":
        return np.full(shape, 0.0 if kind == "none" else 1e-3)
    return np.array([chance.choice((0.0, 1e-3, 2e-3)) for _ in range(int(np.prod(shape)))]).reshape(shape)


def _sizes(chance: Random, count: int) -> NDArray[np.int64]:
    return np.array([chance.choice((0, 0, 1, 1000, 10**6)) for _ in range(count)], dtype=np.int64)


_LINKS = (
    *[((1e-6,), (0.0,)), ((0.0,), (1e-9,)), ((1e-6,), (1e-9,))] * 2,
    *[((1e-6,), (0.0, 1e-9)), ((0.0, 1e-6), (1e-9,)), ((0.0, 1e-6), (0.0, 1e-9))],
)
"""Latencies and seconds a byte from which those of links are drawn; a link without both is refused."""


def _taccl(chance: Random) -> Question:
    """Rings, lines, stars and networks of all links, some free of latency or of bytes; some links share a port."""
    count = chance.choice((1, *[2] * 6, *[3] * 6, *[4] * 3))
    collective = chance.choice(tuple(sorted(COLLECTIVES)))
    root = (None, 0, count - 1) if collective in ("broadcast", "gather", "reduce", "scatter", "sendrecv") else (None,)
    shape = chance.choice(("ring", "line", "star", "complete"))
    near = {"ring": 1, "line": 1, "star": 0, "complete": count}[shape]
    pairs = [
        (a, b) for a in range(count) for b in range(count)
        if a != b and (abs(a - b) <= near or (shape == "ring" and (b - a) % count == 1) or (not near and 0 in (a, b)))
    ]  # fmt: skip
    alphas_s, betas_s = chance.choice(_LINKS)
    shares = chance.choice((0.0, 0.0, 0.5))
    links = [
        Link(*pair, chance.choice(alphas_s), chance.choice(betas_s), (0,) if chance.random() < shares else ())
        for pair in pairs
    ]
    topology = Topology("drawn", tuple(range(count)), tuple(links), ("port",))
    return {
        "topology": topology, "collective": collective, "parameters": QUICK,
        **_some(
            chance, size=(1, 3, 1000, 10**6), chunks=(None, None, 1, 2, 3), root=root, path_slack=(None, None, 0.0),
            method=("auto", "auto", "auto", "greedy", "milp"),
        ),
    }  # fmt: skip


def _monet(chance: Random, graph: TrainingGraph) -> Question:
    """Steps without times, without bytes, with either here and there; budgets from one byte to more than enough."""
    kind = chance.choice(("as it is", "no times", "no bytes", "some"))
    if kind in ("no times", "some"):
        names = {node.name for node in (*graph.forward, *graph.backward) if kind != "some" or chance.random() < 0.5}
        graph = graph.with_implementations(lambda name, run: replace(run, duration_s=0.0) if name in names else run)
    if kind == "no bytes":
        graph = _weightless(graph)
    budgets = (1, 30, 100, 10**6, *map(Share, (0.5, 0.7, 0.8, 1.0)))
    return {"graph": graph, "parameters": {"least_budget_steps": 0}, **_some(chance, budget=budgets, gap=(0, 0.05))}


def _weightless(graph: TrainingGraph) -> TrainingGraph:
    """The graph with tensors and workspaces of no bytes."""
    graph = graph.with_implementations(lambda _, run: replace(run, workspace_bytes=0))
    forward = tuple(replace(node, output_bytes=0) for node in graph.forward)
    backward = tuple(replace(node, output_bytes=0, fixed_bytes=0) for node in graph.backward)
    return replace(graph, forward=forward, backward=backward, fixed_bytes=0)


def _cost(chance: Random) -> CostFunction:
    points = PointsCost(((1000.0, 1e-3), (10.0**6, 2e-3)))
    return chance.choice((FREE, FREE, AffineCost(1e-3, 0.0), AffineCost(0.0, 1e-9), AffineCost(1e-4, 1e-9), points))


def _cupcake(chance: Random) -> Question:
    """Down to one gradient, of no bytes, in modes that may cost nothing."""
    count = chance.choice((1, 1, 2, 3, 5))
    names = chance.choice((("plain",), ("dense",), ("plain", "small"), ("plain", "small", "smaller")))
    modes = tuple(
        Mode(
            name, _cost(chance), *((FREE, FREE) if name == "plain" else (_cost(chance), _cost(chance))),
            error="exact" if name == "plain" else chance.choice(tuple(ERRORS)),
        )
        for name in names
    )  # fmt: skip
    forward_s, gradients = float(_times(chance, 1)[0]), tuple(f"gradient{k}" for k in range(count))
    profile = FusionProfile("drawn", forward_s, gradients, _sizes(chance, count), _times(chance, count), modes)
    compress = ("compress",) if names[-1] != "plain" else None
    return {
        "profile": profile,
        **_some(
            chance, method=(*["auto"] * 12, *cupcake.METHODS), decode=("after", "before"),
            pieces=(None, None, None, 3 * 10**5), error=(None, None, "unknown", "feedback"),
            modes=(None, None, compress),
        ),
    }  # fmt: skip


def _bagpipe(chance: Random) -> Question:
    """Down to one example, one row, one trainer and one batch, with passes, messages and control that take no time."""
    batch_size = chance.choice((1, 2, 5, 30))
    cache = chance.choice(({}, {}, {}, {"cache_rows": chance.choice((3, 40, 100))}))
    design = chance.choice((*bagpipe.DESIGNS, *bagpipe.DESIGNS, *(bagpipe.BASELINES if cache else bagpipe.SHARDED)))
    ahead = {} if cache or design in bagpipe.SHARDED else _some(chance, lookahead=(None, 1, 1, 2, 3))
    return {
        "trace": "zipf", "batch_size": batch_size, "design": design, **cache, **ahead,
        **_some(
            chance, examples=(1, 2, 7, 20), table_rows=((1,), (1, 1), (3, 9), (40, 5)),
            trainers=tuple(count for count in (1, 1, 2, 2, 3, 5) if count <= batch_size),
            method=(*["auto"] * 9, *bagpipe.METHODS), objective=(*["auto"] * 6, *bagpipe.OBJECTIVES),
            ownership=bagpipe.OWNERSHIPS, batches=(None, 1, 2), trace_seed=(None, 1, 2),
            replicate_budget=(*[None] * 5, 1, 10**4),
            memory=(*[None] * 9, 10**3, 10**6), dimension=(None, 1), servers=(None, None, None, 1, 2),
            placement=bagpipe.PLACEMENTS, latency=(None, 0.0), fetch_latency=(None, 0.0), forward=(None, 0.0, 1e-3),
            backward=(None, 0.0, 1e-3), control=(None, 0.0),
        ),
    }  # fmt: skip


def _oktopk(chance: Random) -> Question:
    """Ranks that select nothing, the same, or everything; down to one element."""
    ranks, elements, steps = (
        chance.choice((1, *[2] * 4, *[3] * 4, 5)),
        chance.choice((1, 2, 10, 60)),
        chance.choice((1, 1, 2)),
    )
    share = chance.choice((0.0, 0.1, 0.5, 1.0))
    same = [k for k in range(elements) if chance.random() < share]
    is_same = chance.random() < 0.3
    sets = [
        [same if is_same else [k for k in range(elements) if chance.random() < share] for _ in range(ranks)]
        for _ in range(steps)
    ]
    values = None if chance.random() < 0.5 else [[[float(k + 1) for k in held] for held in step] for step in sets]
    return {
        "indices": index_sets(sets, elements, "drawn", values),
        **_some(
            chance, method=("auto", "auto", *oktopk.METHODS), objective=oktopk.OBJECTIVES,
            selection=oktopk.SELECTIONS if values else ("auto", "all"), held_out=(None, 1 if steps > 1 else None),
            latency=(None, 0.0, 0.0), bandwidth=(None, 1e6),
        ),
    }  # fmt: skip


def _chai(chance: Random) -> Question:
    """Down to one layer and one head, with heads that are alike."""
    layers, key_heads, group = chance.choice((1, 2, 3)), chance.choice((1, 2, 3, 4)), chance.choice((1, 1, 2))
    heads = key_heads * group
    scores, output = (_times(chance, layers, heads, heads) for _ in range(2))
    for distance in (scores, output):
        distance[:, range(heads), range(heads)] = 0.0
    profile = HeadProfile("drawn", scores, output, key_heads, 1, 1, 1)
    return {
        "profile": profile,
        **_some(
            chance, kv_saving=(0.0, 0.0, 0.1, 0.25, 0.375, 0.5), distance=("auto", "output", "scores"),
            method=chai.METHODS, context=(1, 2048), batch=(None, 3), element_bytes=(None, 1),
        ),
    }  # fmt: skip


def _cache(chance: Random) -> Question:
    """Down to one layer, head, token and byte, with modes that spoil nothing."""
    layers, key_heads, group = chance.choice((1, 2, 3)), chance.choice((1, 2, 3)), chance.choice((1, 1, 2))
    layout = Layout(chance.choice((8, 16)), *chance.choice(((1, 1, 0), (8, 1, 4), (8, 20, 8))))
    windows = chance.choice(((), (layout.recent,), (layout.recent, 40)))
    counts, measures, formats = tuple(range(1, key_heads)), len(MEASURES), len(FORMATS) - 1
    rows = np.zeros((layers, len(counts), key_heads * group), dtype=np.int64)
    profile = CacheProfile(
        "drawn", layout, key_heads * group, key_heads, 1, 1, 1, _times(chance, measures, layers, len(PARTS), formats),
        _times(chance, layers, len(PARTS), key_heads), windows, _times(chance, measures, layers, len(windows)),
        counts, rows, _times(chance, measures, layers, len(counts)),
    )  # fmt: skip
    return {
        "profile": profile, "cache": chance.choice((1, 10**9, 10**9, *map(Share, (0.4, 0.6, 0.8, 0.9, 1.0, 1.0)))),
        **_some(
            chance, tokens=(None, 1, 20, 100), batch=(None, 3), element_bytes=(None, 1), measure=tuple(MEASURES),
            modes=(None, None, ("formats",), ("windows", "sharing")), method=(*["exact"] * 8, *cache.METHODS),
        ),
    }  # fmt: skip


def _ranks(chance: Random) -> Question:
    """Down to one epoch, one layer, one mode and one step, with errors and times of nothing."""
    epochs, layers, modes = chance.choice((1, 1, 3)), chance.choice((1, 2, 4)), chance.choice((1, 2, 3))
    shapes = tuple(chance.choice(((1,), (5,), (8, 8), (40, 30), (1, 1))) for _ in range(layers))
    trace = CompressionTrace(
        name="drawn", layer_names=tuple(f"layer{k}" for k in range(layers)), shapes=shapes,
        modes=("plain", "powersgd:1", "powersgd:4")[-modes:], steps=np.full(epochs, chance.choice((1, 5))),
        learning_rate=np.full(epochs, chance.choice((0.0, 0.1))), error=_times(chance, epochs, layers, modes),
        norm=_times(chance, epochs, layers), deviation_ratio=_times(chance, epochs, layers),
        forward_s=float(_times(chance, 1)[0]), backward_s=_times(chance, layers),
        compress_s=_times(chance, layers, modes),
    )  # fmt: skip
    network = chance.choice(({}, {"workers": chance.choice((2, 4)), "bandwidth": chance.choice((1e6, 1e12))}))
    limits = _some(chance, latency=(None, 0.0), step_time=(None, None, 0.0, 1e-2, 1.0)) if network else {}
    methods = ("auto", "milp", "constant")
    phases = chance.choice(({}, {"phases": "epoch", **_some(chance, switches=(None, 0, 1))}))
    return {
        "trace": trace, **network, **limits, **phases,
        **_some(
            chance, data=(1, *map(Share, (0.0, 0.3, 0.6, *[1.0] * 6)), None if limits.get("step_time") else Share(0.7)),
            method=(*["auto"] * 5, *(ranks.METHODS if phases else methods)),
        ),
    }  # fmt: skip


_FEW_ORDERS = {"exact_steps": 50, "rounds": 2, "window_steps": 5}


def _pipeline(chance: Random) -> Question:
    """Down to one rank, layer and micro-batch; forwards, backwards, hops, sums and sizes of nothing."""
    placement = chance.choice(("linear", "linear", "looped", "v"))
    count = chance.choice((1, 2, 2, 3, 4) if placement == "linear" else (1, 2, 2))
    hops = _some(chance, hop=(None, 0.0, 1e-3)) or _some(chance, bandwidth=(None, 1e9), latency=(None, 0.0))
    replicas = chance.choice(({}, {}, {"replicas": 2, "replica_bandwidth": 1e9}))
    limits = _some(chance, in_flight=(None, 1, 2, 4)) or _some(chance, memory=(None, None, 1, 1000, 10**7))
    times = ",".join(f"{name}={chance.choice((0, 0, 1, 2))}ms" for name in "fbw")
    if "bandwidth" not in hops:
        hops.pop("latency", None)
    chunks = 1 if placement == "linear" else 2
    methods = [name for name, one in BASELINES.items() if one.placement == placement and not one.each_rank]
    return {
        "profile": f"uniform:{times}" if chance.random() < 0.5 else _layers(chance, count * chunks),
        "ranks": count, "placement": placement, "parameters": _FEW_ORDERS, **hops, **replicas, **limits,
        **_some(
            chance, micro_batches=(1, 1, 2, 4), backward=pipeline.BACKWARDS, cut=(None, *pipeline.CUTS),
            recomputation=pipeline.RECOMPUTATIONS, blocking_sends=(False, False, True),
            embedding=(None, *pipeline.EMBEDDINGS), method=(*["auto"] * 4, "search", *methods),
        ),
    }  # fmt: skip


def _layers(chance: Random, least: int) -> PipelineProfile:
    count = least + chance.choice((0, 0, 2))
    parameters = _sizes(chance, count)
    return PipelineProfile(
        "drawn", tuple(f"layer{k}" for k in range(count)), *(_times(chance, count) for _ in range(3)),
        parameters, parameters + _sizes(chance, count), _sizes(chance, count), _sizes(chance, count),
        chance.choice((0, int(min(parameters[0], parameters[-1])))),
    )  # fmt: skip


def _sharding(chance: Random) -> Question:
    """Down to one node, with nodes that never live, costs of nothing, and limits that nothing keeps."""
    seed, nodes = chance.randrange(10**6), chance.choice((1, 2, 4, 7))
    drawn = {
        "nodes": nodes,
        "choices": chance.choice((1, 2, 3)),
        "edges": 0 if nodes == 1 else chance.choice((0, 3, 9)),
    }
    tightness, most = chance.choice((-0.1, 0.0, 0.4, 1.0)), chance.choice((1, 50, 10**17))
    return {"instance": random_instance(seed, **drawn, tightness=tightness, most_cost=most)}


_DRAWN: dict[str, Callable[[Random], Question]] = {
    "taccl": _taccl, "cupcake": _cupcake, "bagpipe": _bagpipe, "oktopk": _oktopk, "cache": _cache, "chai": _chai,
    "ranks": _ranks, "pipeline": _pipeline, "sharding": _sharding,
}  # fmt: skip
DRAWN = ("monet", *_DRAWN)
"""The systems whose questions are drawn."""
