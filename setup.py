"""Installs the folders of this checkout under one name: ``rtl`` is imported as ``open_rnic.rtl``.

Only the mapping is here, as pyproject.toml has no form for it; all else is there.
"""

from setuptools import find_packages, setup

FOLDERS = find_packages(include=["rtl*", "host_driver*", "boards*", "cocotb_tests*"])

setup(packages=[f"open_rnic.{each}" for each in FOLDERS], package_dir={"open_rnic": "."})
