"""The search: simulated annealing over keep-sets, evaluated by array operations."""
