"""Collectives of unlike shares: ALLTOALLV and ALLGATHERV, their bounds and plans, in chunks of unlike sizes."""
