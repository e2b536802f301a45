"""Memory outside of the FPGA: SDRAM behind a memory port."""
