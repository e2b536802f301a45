"""The core for FuseSoC: its description, its generator and its testbench."""
