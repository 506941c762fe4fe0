"""The search over cuts, what recomputes and orders: its cases, and the plans that it begins with."""
