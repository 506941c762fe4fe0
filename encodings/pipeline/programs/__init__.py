"""Orders as schedules, and saved plans as what other programs run and people see."""
