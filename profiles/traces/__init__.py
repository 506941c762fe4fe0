"""Traces: the embedding ids that training looks up; read from files or drawn from generators."""
