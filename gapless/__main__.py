"""`python -m gapless`."""

from gapless.cli.main import script

if __name__ == "__main__":
    script()
