"""What ranks keep of micro-batches, counted, and on its way to hosts and back."""
