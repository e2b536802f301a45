"""The device's data path in Amaranth HDL, and the plain-data description of its registers."""
