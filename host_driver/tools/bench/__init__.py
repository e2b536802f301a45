"""Benchmarks: the cost of the software, and measurements of the RTL. ``rnic bench`` runs them."""
