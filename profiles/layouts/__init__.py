"""Layouts of a model's tensors on a mesh of devices: their names, changes from one to another, and what these cost."""
