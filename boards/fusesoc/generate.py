"""The generator of FuseSoC: writes the Verilog of ``rnic verilog``, whose options are the parameters."""

import subprocess
import sys
from pathlib import Path

try:
    import yaml
except ImportError:
    sys.exit("PyYAML is missing for the python3 in the PATH, which runs generators: FuseSoC itself needs it, too")


def main() -> None:
    """Write the Verilog and the core that names it, as FuseSoC's file of parameters, the argument, asks."""
    given = yaml.safe_load(Path(sys.argv[1]).read_text())
    options = [word for name, value in given["parameters"].items() for word in (f"--{name}", str(value))]
    try:
        done = subprocess.run(["rnic", "verilog", *options, "-o", "open_rnic.v"], check=False)
    except FileNotFoundError:
        sys.exit("rnic is not in the PATH: `pip install .` in the checkout of open-rnic installs it")
    if done.returncode:
        sys.exit(done.returncode)
    files = {"files": ["open_rnic.v"], "file_type": "verilogSource"}
    core = {"name": given["vlnv"], "filesets": {"rtl": files}, "targets": {"default": {"filesets": ["rtl"]}}}
    Path("open_rnic_generated.core").write_text(f"CAPI=2:\n{yaml.safe_dump(core)}")


if __name__ == "__main__":
    main()
