"""Orders of micro-batches on stages whose costs are known: searches, bounds."""
