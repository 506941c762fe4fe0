"""What makes a solve end with the best plan so far, whatever ends it, and how it came there."""
