"""A step: its costs, its times and its schedule."""
