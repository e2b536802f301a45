"""The link between a host and a data path, over anything that carries octets both ways: ``docs/link.md``."""
