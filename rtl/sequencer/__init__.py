"""A small sequencer: it executes a program over rows of 32-bit words, one row for each connection."""
