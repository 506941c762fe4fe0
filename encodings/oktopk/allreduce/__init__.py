"""A sparse allreduce on a network: messages as a schedule, the order and gather that suit it, bounds, other ones."""
