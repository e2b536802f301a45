"""MPA (RFC 5044, RFC 6581) in software, without I/O."""
