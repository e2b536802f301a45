"""The split model: which stages of MPA's work pay off on the host, and which on the device."""
