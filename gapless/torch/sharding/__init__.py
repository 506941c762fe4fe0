"""Sharding of PyTorch models: the joint graph of a training step, and the layouts that DTensor allows each op."""
