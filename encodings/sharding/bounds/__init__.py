"""Bounds on what any plan costs, and exact answers."""
