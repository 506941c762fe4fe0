"""Plans and bounds for machines whose switches add up and multicast."""
