"""Gradients: fusion profiles, compressors and their costs, and the analytic model of data-parallel training."""
