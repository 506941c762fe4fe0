"""Lower bounds on the makespan, each for a named class of plans."""
