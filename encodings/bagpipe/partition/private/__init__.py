"""Rows that one trainer alone has: the search for more of them."""
