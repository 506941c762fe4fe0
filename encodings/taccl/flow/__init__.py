"""Plans without a MILP: shortest paths, matching on the time-expanded graph, flows rounded to paths, paths by load."""
