"""The search: what is done today, labels, groups that are shared, precisions, and bounds."""
