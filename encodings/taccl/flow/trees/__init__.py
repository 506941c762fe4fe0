"""Trees that carry shares of a collective: their roots, how they are packed, loaded and directed."""
