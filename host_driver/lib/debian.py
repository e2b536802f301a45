"""Debian's packages, by the programs that they contain."""

__all__ = ["package_of"]

_PACKAGES = {  # of programs that have another name
    "c++": "g++",
    "ip": "iproute2",
    "openFPGALoader": "openfpgaloader",
    "ps": "procps",
    "qemu-system-x86_64": "qemu-system-x86",
    "rdma": "iproute2",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "xz": "xz-utils",
}


def package_of(program: str) -> str:
    """Return the Debian package that contains a program."""
    return _PACKAGES.get(program, program)
