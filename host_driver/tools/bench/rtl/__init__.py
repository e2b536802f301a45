"""Measurements of the RTL by ``rnic bench rtl``: cycles in simulation; frequency and cells after place and route."""
