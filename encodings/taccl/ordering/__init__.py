"""Sends of routed chunks, put in order and grouped, and lowered to a schedule."""
