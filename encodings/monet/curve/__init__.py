"""Overhead against memory: a sweep over budgets, the least budget for a time, and memory over time as text."""
