"""Sharding: a layout for every operator over a mesh of devices, under a limit on memory."""
