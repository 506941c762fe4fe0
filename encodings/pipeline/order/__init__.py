"""Orders of micro-batches on stages whose costs are known: those of the field, searches, bounds."""
