"""The one time limit of tests, so that a hang is a failure: no machine is so busy that a test reaches it.

What must be quick is told by progress instead: what came before what, and how often something was looked at.
"""

HANG = 1800.0  # seconds
