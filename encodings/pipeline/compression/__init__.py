"""Modes of hops and sums under an error budget, alone and in turns with orders; the recipes of Optimus-CC."""
