"""Pipelines: plans run by torch.distributed.pipelining, layers and compression errors measured."""
