"""The package as users install it: commands name missing extras, and a wheel has all files but tests."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.lib.optional_packages import EXTRAS, way_to
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.split.model import Setting, figures
from open_rnic.host_driver.tools.split.profile import Device, Host, Link, find
from open_rnic.host_driver.tools.split.stages import RTL, Split

ROOT = Path(__file__).parents[1]
#: The modules of the extra bench besides those of the others.
BENCH = {"cocotbext", "dask", "distributed", "matplotlib"}
WITHOUT = """
import sys
from importlib import metadata

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def from_name(name, there=metadata.Distribution.from_name):
    if name.replace("-", "_") in {blocked!r}:
        raise metadata.PackageNotFoundError(name)
    return there(name)

sys.meta_path.insert(0, Blocked())
metadata.Distribution.from_name = from_name  # a package that is not installed has no version
from open_rnic.host_driver.tools.cli import run
sys.exit(run(sys.argv[1:]))
"""


EVERYTHING = BENCH | {module for modules in EXTRAS.values() for module in modules.values()}


def rnic(blocked, *arguments, cwd):
    along = {"cocotb_tools", "find_libpython"} if "cocotb" in blocked else set()
    program = WITHOUT.format(blocked={*blocked, *along})
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPEN_RNIC_BUILD": str(cwd)}
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False,
                          cwd=cwd, env=variables, timeout=600)  # fmt: skip


NAMING = [  # an extra, a package of it, and a command that names both
    ("sim", "cocotb", ["demo", "--size", "1K"]),
    ("sim", "cocotb", ["verilog", "--lanes", "1", "-o", "-"]),
    ("sim", "cocotb", ["bench", "sim", "--ulpdus", "1", "--rounds", "1"]),
    ("sim", "cocotb", ["interop", "linux", "--folder", "here"]),
    ("bench", "distributed", ["bench", "rtl", "--quick"]),
    ("boards", "amaranth-boards", ["build", "ulx3s"]),
    ("boards", "amaranth-boards", ["boards"]),
    ("boards", "amaranth-boards", ["program", "ulx3s"]),
    ("boards", "amaranth-boards", ["crossings", "ulx3s"]),
    ("boards", "amaranth-boards", ["margins"]),
    ("boards", "amaranth-boards", ["demo", "--device", "serial:sim:ulx3s", "--size", "1K"]),
    ("litex", "litex", ["litex", "colorlight_5a_75b", "--build"]),
    ("cpu", "pythondata-cpu-vexriscv", ["litex", "ecpix5", "--cpu-type", "vexriscv"]),
]  # fmt: skip
WORKING = [  # a command that needs no extra, and what it says; most have no peer here
    (["demo", "--device", "software", "--size", "1K"], "verified 1024 octets each way"),
    (["listen", "--host", "203.0.113.1"], "cannot listen at 203.0.113.1"),
    (["memory", "--bind", "203.0.113.1"], "cannot listen at 203.0.113.1"),
    (["connect", "127.0.0.1:1"], "Connection refused"),
    (["rping", "-c", "-p", "1"], "Connection refused"),
    (["perftest", "ib_send_bw", "127.0.0.1", "-p", "1"], "Connection refused"),
    (["rcopy", __file__, "127.0.0.1", "-p", "1"], "Connection refused"),
    (["rstream", "-s", "127.0.0.1", "-p", "1"], "Connection refused"),
    (["riostream", "-s", "127.0.0.1", "-p", "1"], "Connection refused"),
    (["samples"], "--device software has no sample writer"),
    (["find", "--address", "127.0.0.1", "--seconds", "0.1"], "no board has answered"),
    (["inspect", "udp:127.0.0.1:1"], "no answer"),
    (["registers"], "IDENTITY"),
    (["frame", "61"], "0001610"),
    (["deframe", "--no-crc", "0001610001020304"], '{"ulpdu": "61"}'),
    (["interop", "linux", "--list"], "samples-to-guest"),
    (["bench", "host", "--connections", "2", "--repeats", "1", "--size", "64"], "left behind"),
    (["bench", "crowd", "--silent", "0", "--slow", "0", "--idle", "0", "--clients", "1"], "good client"),
    (["bench", "transport", "--octets", "1000", "--seeds", "1"], "Medians of 1 seeds"),
    (["doctor", "--json"], "pip install '.[sim]'"),
    (["cache"], "MiB"),
    (["man", "man1"], ""),
]


@pytest.mark.parametrize(("extra", "package", "arguments"), NAMING)
def test_a_command_names_the_missing_extra(extra, package, arguments, tmp_path):
    done = rnic(EXTRAS[extra].values(), *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("rnic: ")
    assert f"the Python package {package} is missing: {way_to(extra)}" in done.stderr


@pytest.mark.parametrize(("arguments", "said"), WORKING, ids=[" ".join(each[:2]) for each, _ in WORKING])
def test_commands_without_extras_work_without_them(arguments, said, tmp_path):
    done = rnic(EVERYTHING, *arguments, cwd=tmp_path)
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_is_tried_without_extras():
    commands = cli.commands().commands
    every = {(name, *below) for name, each in commands.items()
             for below in ([(more,) for more in each.commands] if hasattr(each, "commands") else [()])}  # fmt: skip
    # The test below tries rnic split.
    tried = [["split"], *(arguments for *_, arguments in NAMING), *(arguments for arguments, _ in WORKING)]
    assert {each for each in every if not [words for words in tried if (*words[: len(each)],) == each]} == set()


def test_without_extras_splits_have_the_shipped_figures_of_a_device(tmp_path):
    done = rnic(EVERYTHING, "split", "--host", "cortex-a53", "--lanes", "1", "--json", "file", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "figures that come with this package, for 1, 2 lanes" in done.stdout
    found = json.loads((tmp_path / "file").read_text())
    [origin] = [line for line in found["origins"] if line.startswith("figures")]
    assert origin == "figures that come with this package, for 1, 2 lanes"
    [everything] = [each for each in found["splits"] if each["name"] == "TCP, MPA, RDMA"]
    assert everything["luts"] == figures(Setting(find(Host, "cortex-a53"), find(Link, "pcie-gen3-x4"),
                                                 find(Device, "25f"), lanes=1), Split(RTL))[0]  # fmt: skip


@pytest.mark.parametrize(("arguments", "what"), [
    (["--run"], f"the Python package cocotb is missing: {way_to('bench')}"),
    (["--html", "page.html"], f"the Python package matplotlib is missing: {way_to('bench')}"),
])  # fmt: skip
def test_splits_name_the_extra_that_gives_further_figures(arguments, what, tmp_path):
    done = rnic(EVERYTHING, "split", "--host", "cortex-a53", *arguments, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert done.stderr.splitlines()[-1] == f"rnic: {what}"
    assert "Traceback" not in done.stderr
    assert "splits (" not in done.stderr, "the work has begun"


def test_extras_match_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, packages in EXTRAS.items():
        named = {re.split("[>=[]", each)[0] for each in project["optional-dependencies"][extra]}
        assert named - {"open-rnic"} == set(packages)
        assert not named & {each.partition(">")[0] for each in project["dependencies"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy of the tracked files, because a build writes into its source folder
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), "."],
                   cwd=source, check=True, timeout=600)  # fmt: skip
    [made] = folder.glob("*.whl")
    return made


@needs("git")
def test_a_wheel_has_all_files_but_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("rtl", "host_driver", "boards", "cocotb_tests/mpa"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                place = str(path.relative_to(ROOT)).removeprefix("host_driver/start/")
                assert f"open_rnic/{place}" in names
    assert not [name for name in names if not name.startswith(("open_rnic/", "open_rnic-"))]
    tests = {name for name in names if name.startswith("open_rnic/cocotb_tests/")}
    models = {name for name in tests if name.startswith("open_rnic/cocotb_tests/mpa/")}
    assert models
    assert tests - models == {"open_rnic/cocotb_tests/__init__.py"}
    assert not [name for name in names if Path(name).name.startswith(("test_", "conftest"))]


@needs("git")
@pytest.mark.parametrize(("code", "said"), [
    ("import sys; from open_rnic.host_driver.tools.cli import run; sys.exit(run(sys.argv[1:]))",
     "verified 1024 octets each way"),
    ("from open_rnic.cocotb_tests.mpa import axi; print(axi.__file__)", "site/open_rnic/cocotb_tests/mpa/axi.py"),
], ids=("rnic", "models"))  # fmt: skip
def test_a_wheel_works_outside_the_checkout(code, said, wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    # -S -E: without this checkout, which is installed in editable mode, and without PYTHONPATH.
    others = [each for each in sys.path if each.endswith("site-packages")]
    start = f"import sys; sys.path[:0] = {[str(site), *others]!r}; {code}"
    done = subprocess.run([sys.executable, "-S", "-E", "-c", start, "demo", "--device", "software", "--size", "1K"],
                          cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@needs("git")
def test_a_wheel_has_type_information(wheel, tmp_path):
    """The package is installed in an environment of its own, as for a user."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=600)
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "user.py").write_text(
        "from open_rnic.host_driver.devices import open_device\n"
        "from open_rnic.rtl.registers import Role\n\n"
        "async def main() -> None:\n"
        "    async with await open_device('software', lanes=4) as device:\n"
        "        reveal_type(device.lanes)\n"
        "        device.nonesuch\n"
        "    Role.NONESUCH\n"
    )
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--python-executable",
                           str(tmp_path / "venv/bin/python"), "--cache-dir", str(tmp_path / "cache"), "user.py"],
                          cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)  # fmt: skip
    revealed, device, role, *_ = done.stdout.splitlines()
    assert re.search(r'Revealed type is "(builtins\.)?int"', revealed), done.stdout
    assert 'has no attribute "nonesuch"' in device
    assert 'has no attribute "NONESUCH"' in role
