"""The link between a host and a data path over any bidirectional octet stream: see ``docs/link.md``."""
