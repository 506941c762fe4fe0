"""Sparse gradients: which entries each rank selects in each step, recorded or generated."""
