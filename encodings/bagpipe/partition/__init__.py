"""Partition: which trainer gets which example of a batch."""
