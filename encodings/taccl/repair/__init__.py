"""Repair: what still holds of an earlier plan, on a machine that has changed since."""
