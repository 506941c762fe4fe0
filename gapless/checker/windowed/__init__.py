"""The replay window by window: what it knows of tensors at the borders."""
