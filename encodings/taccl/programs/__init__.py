"""Programs: what the runtimes execute, and what it costs them to cut each chunk over several thread blocks."""
