"""TCP in Python: the twin of the TCP engine, an endpoint that needs no sockets.

Octets, segments and times go in; segments and events come out. All times are integers in milliseconds. All sequence
numbers inside are unwrapped (``sequence.py``), so that they compare like other integers.
"""
