"""Lower bounds on the step time of all orders of some stages."""
