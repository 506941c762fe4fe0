"""MONeT's own method: simulated annealing over keep-sets, evaluated by array operations, beside its bounds."""
