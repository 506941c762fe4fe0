"""Schedules of the field by name, and orders that searches start from: building blocks, rounds, squeezed."""
