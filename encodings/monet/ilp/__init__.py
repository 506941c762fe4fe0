"""MONeT's integer program, exact, as the thesis writes it."""
