"""The MILP stages of TACCL (section 5.5): routing, ordering, contiguity."""
