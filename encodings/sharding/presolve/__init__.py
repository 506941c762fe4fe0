"""What is left of an instance after exact reductions, each of which is undone in a plan."""
