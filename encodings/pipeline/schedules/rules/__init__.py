"""Orders by the rules that the schedulers of zero-bubble publish: rounds, and blocks in slots."""
