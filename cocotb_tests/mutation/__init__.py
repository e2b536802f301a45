"""Mutation testing of ``rtl``, which finds faults that the tests and proofs do not detect."""
