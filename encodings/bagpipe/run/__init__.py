"""Runs: batches planned one after the other into a file, read again, gone on with, and carried out."""
