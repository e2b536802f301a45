"""The report of ``rnic split`` in a browser: ``python docs/pictures/report.py`` writes ``report.png``. Needs Chromium.

The picture carries the report's verdicts as its description, so a test sees whether it still shows them.
"""

import html
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from open_rnic.cocotb_tests.plugins.system_packages import program
from open_rnic.host_driver.tools import cli

COMMAND = ("split", "--host", "xeon-avx512", "--lanes", "1")
PICTURE = Path(__file__).with_suffix(".png")
SIZE, SCALE = (960, 1720), 0.75
# The picture begins at the plots, as they are what a reader turns to.
PROBE = """<script>
let heading = document.querySelector("section:not([hidden])");
while (heading.tagName !== "H2") heading = heading.previousElementSibling;
while (heading.previousElementSibling) heading.previousElementSibling.remove();
</script>"""


def report(folder):
    """Return the page of the report, made from the profiles of the package alone."""
    os.environ["OPEN_RNIC_BUILD"] = str(folder)
    path = Path(folder) / "report.html"
    if cli.run([*COMMAND, "--html", str(path)]):
        raise SystemExit(1)
    return path.read_text()


def verdicts(page):
    """Return the verdicts of a report, a line each."""
    found = re.search(r'<ul id="verdicts">(.*?)</ul>', page, re.DOTALL)[1]
    return "\n".join(html.unescape(each) for each in re.findall(r"<li>(.*?)</li>", found))


def shoot(page, folder):
    """Return the picture that a browser makes of a page."""
    shown, picture = Path(folder) / "shown.html", Path(folder) / "report.png"
    shown.write_text(page.replace("</body>", PROBE + "</body>"))
    command = [program("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--hide-scrollbars", f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={SCALE}",
               f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}", shown.as_uri()]  # fmt: skip
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    return picture.read_bytes()


def described(picture, text):
    """Return a PNG file with a description, as a chunk iTXt before its last one."""
    body = b"iTXtDescription\0\0\0\0\0" + text.encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return picture[:-12] + chunk + picture[-12:]


def description(picture):
    """Return the description of such a file, and its width and height."""
    at = picture.index(b"iTXtDescription")
    [length] = struct.unpack(">I", picture[at - 4 : at])
    return picture[at + 20 : at + 4 + length].decode(), struct.unpack(">II", picture[16:24])


if __name__ == "__main__":
    if program("chromium") is None:
        sys.exit("chromium is missing: install the Debian package chromium")
    with tempfile.TemporaryDirectory() as made:
        page = report(made)
        PICTURE.write_bytes(described(shoot(page, made), verdicts(page)))
