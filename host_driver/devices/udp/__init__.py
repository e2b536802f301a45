"""The whole RNIC behind an Ethernet cable, which its host operates by UDP (``docs/link.md``)."""
