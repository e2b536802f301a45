"""Measurements: what the software costs, and what it holds. ``rnic bench`` shows them."""
