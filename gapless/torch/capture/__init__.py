"""Capture: one training step of a PyTorch model as a training graph, with the time and workspace of each operator."""
