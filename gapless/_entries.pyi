# The systems' entries, as type checkers see them: made by `python -m gapless.question.stubs` from their questions.

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.taccl.sketch.format import Sketch
from gapless.io.plan import SavedPlan
from gapless.ir.collective import Collective
from gapless.options import Progress
from gapless.profiles.cache.profile import CacheProfile
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compressors.compressor import Compressor
from gapless.profiles.devices import Device
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.heads.profile import HeadProfile
from gapless.profiles.pipelines.compression import CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.recommendation import DenseModel
from gapless.profiles.traces.trace import Trace
from gapless.profiles.training.graph import TrainingGraph
from gapless.question.fields import Share
from gapless.result import Result
from gapless.system import System
from gapless.topologies.topology import Topology
from gapless.torch.run.workload import Workload

__all__ = ["bagpipe", "cache", "chai", "cupcake", "fsdp", "monet", "oktopk", "pipeline", "ranks", "sharding", "taccl"]

class _Bagpipe:
    system: System
    def problem(
        self,
        trace: str | Path | Trace | NDArray[np.integer] | Bags,
        *,
        trainers: int | str,
        batch_size: int | str,
        lookahead: int | str | None = None,
        cache_rows: int | str | None = None,
        objective: str = "auto",
        method: str = "auto",
        ownership: str = "first-touch",
        shares: Sequence[float] | str | None = None,
        design: str = "auto",
        replicate_budget: int | str | None = None,
        memory: int | str | None = None,
        batches: int | str = 50,
        resume: str | None = None,
        model: str | DenseModel = "dlrm",
        dimension: int | str = 48,
        optimizer: str = "sgd",
        trainer_flops: float | str | None = None,
        trainer_bandwidth: float | str | None = None,
        server_bandwidth: float | str | None = None,
        servers: int | str | None = None,
        placement: str = "apart",
        latency: float | str | None = None,
        fetch_latency: float | str | None = None,
        forward: float | str | None = None,
        backward: float | str | None = None,
        control: float | str | None = None,
        columns: Sequence[str] | str | None = None,
        string_columns: Sequence[str] | str | None = None,
        bag_columns: Sequence[str] | str | None = None,
        array: str | None = None,
        exponent: float | str | None = None,
        hot_share: float | str | None = None,
        table_rows: Sequence[int] | str | None = None,
        examples: int | str | None = None,
        trace_seed: int | str | None = None,
        pooling_factors: Sequence[float] | str | None = None,
        repeats: float | str | None = None,
    ) -> Any: ...
    def solve(
        self,
        trace: str | Path | Trace | NDArray[np.integer] | Bags,
        *,
        trainers: int | str,
        batch_size: int | str,
        lookahead: int | str | None = None,
        cache_rows: int | str | None = None,
        objective: str = "auto",
        method: str = "auto",
        ownership: str = "first-touch",
        shares: Sequence[float] | str | None = None,
        design: str = "auto",
        replicate_budget: int | str | None = None,
        memory: int | str | None = None,
        batches: int | str = 50,
        resume: str | None = None,
        model: str | DenseModel = "dlrm",
        dimension: int | str = 48,
        optimizer: str = "sgd",
        trainer_flops: float | str | None = None,
        trainer_bandwidth: float | str | None = None,
        server_bandwidth: float | str | None = None,
        servers: int | str | None = None,
        placement: str = "apart",
        latency: float | str | None = None,
        fetch_latency: float | str | None = None,
        forward: float | str | None = None,
        backward: float | str | None = None,
        control: float | str | None = None,
        columns: Sequence[str] | str | None = None,
        string_columns: Sequence[str] | str | None = None,
        bag_columns: Sequence[str] | str | None = None,
        array: str | None = None,
        exponent: float | str | None = None,
        hot_share: float | str | None = None,
        table_rows: Sequence[int] | str | None = None,
        examples: int | str | None = None,
        trace_seed: int | str | None = None,
        pooling_factors: Sequence[float] | str | None = None,
        repeats: float | str | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

bagpipe: _Bagpipe

class _Cache:
    system: System
    def problem(
        self,
        profile: str | Path | CacheProfile,
        *,
        cache: int | Share | str,
        tokens: int | str = 2048,
        batch: int | str = 1,
        element_bytes: int | str = 2,
        device: str | Device = "a100",
        modes: Sequence[str] | str = ("formats", "windows", "sharing"),
        measure: str = "divergence",
        method: str = "exact",
    ) -> Any: ...
    def solve(
        self,
        profile: str | Path | CacheProfile,
        *,
        cache: int | Share | str,
        tokens: int | str = 2048,
        batch: int | str = 1,
        element_bytes: int | str = 2,
        device: str | Device = "a100",
        modes: Sequence[str] | str = ("formats", "windows", "sharing"),
        measure: str = "divergence",
        method: str = "exact",
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

cache: _Cache

class _Chai:
    system: System
    def problem(
        self,
        profile: str | Path | HeadProfile,
        *,
        kv_saving: float | str,
        distance: str = "auto",
        method: str = "exact",
        query_saving: float | str = 0.0,
        context: int | str = 2048,
        batch: int | str = 1,
        element_bytes: int | str = 2,
        device: str | Device = "a100",
        swaps: int | str = 0,
        model: str | None = None,
        calibration: str | None = None,
    ) -> Any: ...
    def solve(
        self,
        profile: str | Path | HeadProfile,
        *,
        kv_saving: float | str,
        distance: str = "auto",
        method: str = "exact",
        query_saving: float | str = 0.0,
        context: int | str = 2048,
        batch: int | str = 1,
        element_bytes: int | str = 2,
        device: str | Device = "a100",
        swaps: int | str = 0,
        model: str | None = None,
        calibration: str | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

chai: _Chai

class _Cupcake:
    system: System
    def problem(
        self,
        profile: str | Path | FusionProfile,
        *,
        method: str = "auto",
        modes: Sequence[str] | str | None = None,
        decode: str = "after",
        error: str = "unknown",
        pieces: int | str | None = None,
        cores: float | str | None = None,
        compressor: str | Compressor | None = None,
        device: str | Device | None = None,
        ranks: int | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        aggregation: str | None = None,
        ranks_per_node: int | str | None = None,
        inner_bandwidth: float | str | None = None,
        inner_latency: float | str | None = None,
        topology: str | Topology | None = None,
        nodes: int | str | None = None,
        levels: int | str | None = None,
    ) -> Any: ...
    def solve(
        self,
        profile: str | Path | FusionProfile,
        *,
        method: str = "auto",
        modes: Sequence[str] | str | None = None,
        decode: str = "after",
        error: str = "unknown",
        pieces: int | str | None = None,
        cores: float | str | None = None,
        compressor: str | Compressor | None = None,
        device: str | Device | None = None,
        ranks: int | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        aggregation: str | None = None,
        ranks_per_node: int | str | None = None,
        inner_bandwidth: float | str | None = None,
        inner_latency: float | str | None = None,
        topology: str | Topology | None = None,
        nodes: int | str | None = None,
        levels: int | str | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

cupcake: _Cupcake

class _Fsdp:
    system: System
    def problem(
        self,
        profile: str | Path | PipelineProfile,
        *,
        ranks: int | str,
        bandwidth: float | str,
        latency: float | str = 0.0001,
        ranks_per_node: int | str = 1,
        inner_bandwidth: float | str | None = None,
        inner_latency: float | str = 2e-05,
        memory: int | str | None = None,
        sharding: Sequence[str] | str = ("full",),
        state_bytes: float | str = 16.0,
        gather: Sequence[str] | str = ("bf16",),
        scatter: Sequence[str] | str = ("fp32",),
        executor: str = "fsdp2",
        stored: str = "bf16",
        method: str = "auto",
    ) -> Any: ...
    def solve(
        self,
        profile: str | Path | PipelineProfile,
        *,
        ranks: int | str,
        bandwidth: float | str,
        latency: float | str = 0.0001,
        ranks_per_node: int | str = 1,
        inner_bandwidth: float | str | None = None,
        inner_latency: float | str = 2e-05,
        memory: int | str | None = None,
        sharding: Sequence[str] | str = ("full",),
        state_bytes: float | str = 16.0,
        gather: Sequence[str] | str = ("bf16",),
        scatter: Sequence[str] | str = ("fp32",),
        executor: str = "fsdp2",
        stored: str = "bf16",
        method: str = "auto",
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

fsdp: _Fsdp

class _Monet:
    system: System
    def problem(
        self,
        graph: str | TrainingGraph,
        *,
        batch: int | str | None = None,
        device: str | None = None,
        budget: int | Share | str,
        optimizer: str = "none",
        gradients: str = "kept",
        objective: str = "time",
        offload: float | str | None = None,
        host_memory: int | str | None = None,
        method: str = "auto",
        carry: str | SavedPlan | Result | None = None,
    ) -> Any: ...
    def solve(
        self,
        graph: str | TrainingGraph,
        *,
        batch: int | str | None = None,
        device: str | None = None,
        budget: int | Share | str,
        optimizer: str = "none",
        gradients: str = "kept",
        objective: str = "time",
        offload: float | str | None = None,
        host_memory: int | str | None = None,
        method: str = "auto",
        carry: str | SavedPlan | Result | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

monet: _Monet

class _Oktopk:
    system: System
    def problem(
        self,
        indices: str | Path | IndexSets,
        *,
        ranks: int | str | None = None,
        density: float | str | None = None,
        held_out: int | str = 0,
        objective: str = "worst",
        selection: str = "auto",
        method: str = "auto",
        topology: str | Topology | None = None,
        nodes: int | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        add: float | str = 0.0,
        add_start: float | str = 0.0,
    ) -> Any: ...
    def solve(
        self,
        indices: str | Path | IndexSets,
        *,
        ranks: int | str | None = None,
        density: float | str | None = None,
        held_out: int | str = 0,
        objective: str = "worst",
        selection: str = "auto",
        method: str = "auto",
        topology: str | Topology | None = None,
        nodes: int | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        add: float | str = 0.0,
        add_start: float | str = 0.0,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

oktopk: _Oktopk

class _Pipeline:
    system: System
    def problem(
        self,
        profile: str | Path | PipelineProfile,
        *,
        ranks: int | str,
        micro_batches: int | str,
        placement: str | tuple[int, ...] = "linear",
        chunks: int | str | None = None,
        cut: str | tuple[int, ...] = "auto",
        vocabulary_parts: int | str = 1,
        backward: str = "split",
        overlap_cost: float | str = 1.0,
        recomputation: str = "none",
        work: Sequence[float] | str | None = None,
        slices: int | str = 1,
        attention: float | str = 0.0,
        slice_lengths: Sequence[float] | str | None = None,
        minimise: str = "makespan",
        steps: int | str = 1,
        method: str = "auto",
        memory: int | str | None = None,
        in_flight: int | str | None = None,
        message_memory: str = "counted",
        offload: float | str | None = None,
        host_memory: int | str | None = None,
        from_plan: str | SavedPlan | Result | None = None,
        hop: float | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        topology: str | Topology | None = None,
        nodes: int | str | None = None,
        blocking_sends: bool = False,
        replicas: int | str = 1,
        replica_bandwidth: float | str | None = None,
        embedding: str = "fused",
        compression: str | Path | CompressionTable | None = None,
        error_budget: float | str = 0.0,
    ) -> Any: ...
    def solve(
        self,
        profile: str | Path | PipelineProfile,
        *,
        ranks: int | str,
        micro_batches: int | str,
        placement: str | tuple[int, ...] = "linear",
        chunks: int | str | None = None,
        cut: str | tuple[int, ...] = "auto",
        vocabulary_parts: int | str = 1,
        backward: str = "split",
        overlap_cost: float | str = 1.0,
        recomputation: str = "none",
        work: Sequence[float] | str | None = None,
        slices: int | str = 1,
        attention: float | str = 0.0,
        slice_lengths: Sequence[float] | str | None = None,
        minimise: str = "makespan",
        steps: int | str = 1,
        method: str = "auto",
        memory: int | str | None = None,
        in_flight: int | str | None = None,
        message_memory: str = "counted",
        offload: float | str | None = None,
        host_memory: int | str | None = None,
        from_plan: str | SavedPlan | Result | None = None,
        hop: float | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        topology: str | Topology | None = None,
        nodes: int | str | None = None,
        blocking_sends: bool = False,
        replicas: int | str = 1,
        replica_bandwidth: float | str | None = None,
        embedding: str = "fused",
        compression: str | Path | CompressionTable | None = None,
        error_budget: float | str = 0.0,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

pipeline: _Pipeline

class _Ranks:
    system: System
    def problem(
        self,
        trace: str | Path | CompressionTrace,
        *,
        data: int | Share | str | None = None,
        step_time: float | str | None = None,
        phases: str = "static",
        switches: int | str | None = None,
        modes: Sequence[str] | str | None = None,
        method: str = "auto",
        workers: int | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
    ) -> Any: ...
    def solve(
        self,
        trace: str | Path | CompressionTrace,
        *,
        data: int | Share | str | None = None,
        step_time: float | str | None = None,
        phases: str = "static",
        switches: int | str | None = None,
        modes: Sequence[str] | str | None = None,
        method: str = "auto",
        workers: int | str | None = None,
        bandwidth: float | str | None = None,
        latency: float | str | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

ranks: _Ranks

class _Sharding:
    system: System
    def problem(
        self,
        instance: str | Path | Instance | None = None,
        *,
        model: str | Workload | None = None,
        mesh: tuple[int, ...] | str | None = None,
        topology: str | Topology | None = None,
        topology_file: str | None = None,
        nodes: int | str | None = None,
        device: str | Device = "h100",
        memory: int | str | None = None,
        optimizer: str = "adam",
        unequal_layers: bool = False,
        method: str = "best",
    ) -> Any: ...
    def solve(
        self,
        instance: str | Path | Instance | None = None,
        *,
        model: str | Workload | None = None,
        mesh: tuple[int, ...] | str | None = None,
        topology: str | Topology | None = None,
        topology_file: str | None = None,
        nodes: int | str | None = None,
        device: str | Device = "h100",
        memory: int | str | None = None,
        optimizer: str = "adam",
        unequal_layers: bool = False,
        method: str = "best",
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

sharding: _Sharding

class _Taccl:
    system: System
    def problem(
        self,
        topology: str | Topology | None = None,
        *,
        topology_file: str | None = None,
        nodes: int | str | None = None,
        sketch: str | Sketch | None = None,
        sketch_file: str | None = None,
        collective: str | Collective | None = None,
        collective_file: str | None = None,
        ranks: str | None = None,
        group: Sequence[str] | str | None = None,
        groups_file: str | None = None,
        relays: str = "yes",
        root: int | str | None = None,
        target: int | str | None = None,
        size: int | str | None = None,
        matrix: str | NDArray[Any] | None = None,
        expert_loads: str | NDArray[Any] | None = None,
        expert_token_bytes: int | str | None = None,
        expert_placement: tuple[int, ...] | str | None = None,
        expert_direction: str = "dispatch",
        path_slack: float | str | None = None,
        method: str = "auto",
        chunks: int | str | None = None,
        no_switch_reduction: bool = False,
        without_links: Sequence[str] | str | None = None,
        without_ranks: int | Sequence[int] | str | None = None,
        degraded: Sequence[str] | str | None = None,
        from_plan: str | SavedPlan | Result | None = None,
    ) -> Any: ...
    def solve(
        self,
        topology: str | Topology | None = None,
        *,
        topology_file: str | None = None,
        nodes: int | str | None = None,
        sketch: str | Sketch | None = None,
        sketch_file: str | None = None,
        collective: str | Collective | None = None,
        collective_file: str | None = None,
        ranks: str | None = None,
        group: Sequence[str] | str | None = None,
        groups_file: str | None = None,
        relays: str = "yes",
        root: int | str | None = None,
        target: int | str | None = None,
        size: int | str | None = None,
        matrix: str | NDArray[Any] | None = None,
        expert_loads: str | NDArray[Any] | None = None,
        expert_token_bytes: int | str | None = None,
        expert_placement: tuple[int, ...] | str | None = None,
        expert_direction: str = "dispatch",
        path_slack: float | str | None = None,
        method: str = "auto",
        chunks: int | str | None = None,
        no_switch_reduction: bool = False,
        without_links: Sequence[str] | str | None = None,
        without_ranks: int | Sequence[int] | str | None = None,
        degraded: Sequence[str] | str | None = None,
        from_plan: str | SavedPlan | Result | None = None,
        time_limit: float | str | None = None,
        gap: float | str | None = None,
        threads: int | str = 0,
        seed: int | str = 0,
        solver: str | None = None,
        parameters: Mapping[str, object] | str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result: ...
    def parameters(self, given: Mapping[str, object] | str | None = None) -> Any: ...

taccl: _Taccl
