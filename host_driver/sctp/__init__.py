"""DDP stream sessions over SCTP (RFC 5043, RFC 6581 §7)."""
