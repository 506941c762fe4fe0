"""Kernels: the operators that rewrites put in the place of PyTorch's own."""
