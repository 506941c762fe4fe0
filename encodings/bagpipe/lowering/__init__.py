"""Lowering: what trainers do, as a schedule of the graph IR, replayed window by window."""
