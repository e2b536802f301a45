"""The host half of the RNIC: startup exchange, software data path, and the devices it drives."""
