"""Methods: ways to look for a plan, the loop that tries them, where their time goes, loops as machine code."""

from gapless.methods.loop import Method, MethodChoice, Search, run_methods

__all__ = ["Method", "MethodChoice", "Search", "run_methods"]
