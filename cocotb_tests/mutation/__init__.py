"""Mutation testing of ``rtl``: what the tests and proofs would not notice, if it were wrong."""
