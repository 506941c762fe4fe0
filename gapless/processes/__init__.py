"""Processes: workers and the jobs that they do, ranks of a launcher, and what is undone when a process ends."""
