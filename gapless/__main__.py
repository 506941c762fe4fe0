"""`python -m gapless`."""

from gapless.cli.main import script

script()
