"""Orders as one model for a solver: all ops of a step, or those of a window, of which all else stands."""
