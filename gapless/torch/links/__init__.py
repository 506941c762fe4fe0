"""Transfers between ranks over torch.distributed, timed for the profiler of links."""
