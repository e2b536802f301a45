"""The simulated device: how it is built, what surrounds the RTL in it, and what runs in its process."""
