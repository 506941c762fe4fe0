"""Where a sparse gradient is cut into regions, and which rank owns each: loads, and the methods that balance them."""
