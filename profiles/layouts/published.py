"""Names of published layouts. Imports nothing: the command line knows them."""

__all__ = ["AUTOPARALLEL", "BASELINES"]

BASELINES = ("ddp", "fsdp", "hsdp", "megatron", "megatron_fsdp")
"""Published layouts: all on the batch; parameters sharded too, along all axes or the last alone; transformers' products
split along the last axis and the batch along the others, perhaps with parameters sharded along these."""

AUTOPARALLEL = "autoparallel"
"""What AutoParallel's own integer program says of the same costs: its memory is that of parameters alone."""
