"""Bandwidth: what links take at least, latencies aside, exactly where it can be known."""
