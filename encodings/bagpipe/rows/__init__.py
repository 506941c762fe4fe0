"""Rows of embeddings between processes: where they lie, who serves them, and the networks that they cross."""
