"""Runs of any design carried out by PyTorch's processes: planned all-to-alls, in the order of the plan, beside the
passes. Needs the extra `torch`.
"""
