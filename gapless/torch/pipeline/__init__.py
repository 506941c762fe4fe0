"""Pipelines: stages that compress, layers and compression errors measured; `run` runs plans on processes."""

from gapless.torch.pipeline.layers import LayeredModel, load_layers
from gapless.torch.pipeline.measuring import measure_errors, measure_layers
from gapless.torch.pipeline.stage import CompressedStage

__all__ = ["CompressedStage", "LayeredModel", "load_layers", "measure_errors", "measure_layers"]
