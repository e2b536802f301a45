"""Installs the folders of this checkout under one name: ``rtl`` is imported as ``open_rnic.rtl``.

Only the mapping is here, as pyproject.toml has no form for it; all else is there. ``open_rnic`` itself is the folder
host_driver/start.
"""

from setuptools import find_packages, setup

START = "host_driver.start"
TOP = ("rtl", "host_driver", "boards", "cocotb_tests")
FOLDERS = find_packages(include=[f"{each}*" for each in TOP], exclude=[START])

setup(
    packages=["open_rnic", *(f"open_rnic.{each}" for each in FOLDERS)],
    package_dir={"open_rnic": START.replace(".", "/"), **{f"open_rnic.{each}": each for each in TOP}},
)
