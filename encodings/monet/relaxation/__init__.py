"""The bound: an aggregated relaxation over windows of stages."""
