"""Machines whose costs and structure are measured by transfers between their ranks; knows no way to transfer."""
