"""The simulated device: its build, the RTL around the data path, and the server in the simulator's process."""
