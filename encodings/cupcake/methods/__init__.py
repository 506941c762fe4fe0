"""Methods of fusion: what people do, exact searches for one mode and for several, a MILP, the paper's search."""
