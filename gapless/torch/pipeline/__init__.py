"""Pipelines: stages that compress, layers and errors measured, trainings; `run` runs plans on processes."""

from gapless.torch.pipeline.layers import LayeredModel, load_layers
from gapless.torch.pipeline.measuring import measure_errors, measure_layers
from gapless.torch.pipeline.stage import CompressedStage
from gapless.torch.pipeline.training import PipelineTraining, Training, Variant

__all__ = [
    "CompressedStage", "LayeredModel", "PipelineTraining", "Training", "Variant", "load_layers", "measure_errors",
    "measure_layers",
]  # fmt: skip
