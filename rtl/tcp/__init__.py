"""TCP: an engine that keeps the connections of one address, each in a row of words (RFC 9293)."""
