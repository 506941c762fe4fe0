"""Plans: decoded, repaired, improved."""
