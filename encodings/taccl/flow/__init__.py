"""Plans without a MILP: matching on the time-expanded graph, flows rounded to paths, paths by load."""
