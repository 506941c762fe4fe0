"""What modes of a cache of keys and values spoil, by layer and head."""
