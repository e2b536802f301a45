"""Tests against siw, the Linux kernel's iWARP driver, booted in QEMU."""
