"""Runs carried out: what each process sends to each other one, batch by batch, and what that takes."""
