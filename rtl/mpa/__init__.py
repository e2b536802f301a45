"""MPA (RFC 5044): the data path of one connection."""
