"""Cache designs: what each moves in a batch, and when."""
