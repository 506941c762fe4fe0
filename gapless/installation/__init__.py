"""What is installed, whether it works, and whether it makes the tables of the documentation again."""
