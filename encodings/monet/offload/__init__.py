"""Offloading: tensors that spend the time between their last forward and their first backward use on the host."""
