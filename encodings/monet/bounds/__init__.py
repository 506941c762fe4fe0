"""Lower bounds: what every plan must hold, relaxations beside the search, and the proofs of what they claim."""
