"""An Ethernet MAC: frames of the core's clock become octets at the pins of a PHY, and back."""
