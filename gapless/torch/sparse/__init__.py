"""Sparse gradients: recorded, added by regions between processes, and in training under DistributedDataParallel."""
