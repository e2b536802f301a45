"""Tests of the bank of registers."""
