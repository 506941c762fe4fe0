"""Lower bounds on the cost of every plan, exact whatever made their multipliers."""
