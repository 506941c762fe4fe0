"""Data-parallel training: gradients measured into fusion profiles, fusion plans applied to DistributedDataParallel."""
