"""Training steps: what layers compute, which collectives they wait for, and which gradients they leave behind."""
