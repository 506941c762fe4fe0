"""A file a format: what other tools read and write, and what people and runs give."""
