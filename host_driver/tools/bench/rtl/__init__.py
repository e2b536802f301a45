"""Measurements of the RTL: cycles in simulation; frequency and cells after place and route. ``rnic bench rtl``."""
