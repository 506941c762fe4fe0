"""Aggregated sends: plans in which a rank sends all that it holds at once, for few bytes."""
