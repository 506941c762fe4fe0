"""Machines whose costs and structure are measured by transfers between their ranks; what transfers is given."""
