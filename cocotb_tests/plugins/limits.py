"""The time limit of tests, which turns a hang into a failure; no machine is so slow that a good test reaches it.

Tests of speed do not measure time: they check the order of events, or count operations such as polls.
"""

HANG = 1800.0  # seconds
