"""The board device: a data path behind a serial line (``docs/link.md``)."""

BAUD = 3_000_000  # unless a port's name says otherwise
