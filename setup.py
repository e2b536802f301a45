"""Installs the folders of this checkout under one name: ``rtl`` is imported as ``open_rnic.rtl``.

Only what pyproject.toml has no form for is here: the mapping, and that no tests are installed, but the models that they
share with other people's testbenches. ``open_rnic`` itself is the folder host_driver/start. An editable installation,
as `make setup` makes it, finds the tests in the checkout.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

START = "host_driver.start"
TOP = ("rtl", "host_driver", "boards", "cocotb_tests")
TESTS, MODELS = "cocotb_tests", "cocotb_tests.mpa"
FOLDERS = [
    each for each in find_packages(include=[f"{name}*" for name in TOP], exclude=[START])
    if not each.startswith(f"{TESTS}.") or each == MODELS
]  # fmt: skip


class WithoutTests(build_py):
    """Leaves out the modules beside the models."""

    def find_package_modules(self, package, package_dir):
        """Return the modules of a package."""
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if package != f"open_rnic.{TESTS}" or each[1] == "__init__"]


setup(
    packages=["open_rnic", *(f"open_rnic.{each}" for each in FOLDERS)],
    package_dir={"open_rnic": START.replace(".", "/"), **{f"open_rnic.{each}": each for each in TOP}},
    cmdclass={"build_py": WithoutTests},
)
