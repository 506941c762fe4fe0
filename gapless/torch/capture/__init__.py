"""Capture: one training step of a PyTorch model as a training graph, with the time and workspace of each operator."""

from gapless.torch.capture.graph import capture
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.timing import profile, share_of_zeros

__all__ = ["CapturedStep", "capture", "profile", "share_of_zeros"]
