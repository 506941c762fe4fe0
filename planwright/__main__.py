"""`python -m planwright`."""

from planwright.cli.main import script

script()
