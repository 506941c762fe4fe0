"""Runs of any design carried out: planned all-to-alls in the order of the plan, beside the passes."""
