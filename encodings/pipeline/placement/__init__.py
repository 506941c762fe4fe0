"""Which rank runs which stage: as it is asked, searched, and the links that it needs."""
