"""Symmetry: groups of permutations that keep a topology as it is, and the quotient problems that they leave."""
