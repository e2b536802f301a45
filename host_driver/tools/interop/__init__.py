"""Runs against stacks that this project did not write: the Linux kernel's siw, booted in QEMU."""
