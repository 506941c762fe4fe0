"""`python -m planwright`."""

import sys

from planwright.cli.main import main

sys.exit(main())
