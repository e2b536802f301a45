"""The pictures of the documentation: they are those that their commands make, name what is there, and can be read."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs, program
from open_rnic.host_driver.tools.split import page as split_page

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
DRAWINGS = sorted(FOLDER.glob("*.svg"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PHONE = 328  # pixels of text on a phone of 360
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(drawing):
    return [each.text for each in ElementTree.fromstring(drawing.read_text()).iter(TEXT)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    subprocess.run([sys.executable, "-W", "error", str(FOLDER), str(folder)], check=True, timeout=HANG)
    return folder


def test_the_drawings_are_those_that_the_command_makes(made):
    assert {each.name for each in DRAWINGS} == {each.name for each in made.iterdir()}
    for drawing in DRAWINGS:
        assert drawing.read_text() == (made / drawing.name).read_text(), f"run python docs/pictures: {drawing.name}"


@pytest.mark.parametrize("picture", [*DRAWINGS, FOLDER / "report.png"], ids=lambda path: path.name)
def test_a_page_shows_the_picture_with_a_text_for_those_who_do_not_see_it(picture):
    shown = [text for page in PAGES
             for text, path in re.findall(r"!\[(.*?)\]\((.*?)\)", page.read_text())
             if (page.parent / path).resolve() == picture]  # fmt: skip
    assert shown
    assert all(shown)
    if picture.suffix == ".svg":
        assert {*shown} == {re.search("<title>(.*?)</title>", html.unescape(picture.read_text()))[1]}


@pytest.mark.parametrize("name", ["data-path", "whole-rnic"])
def test_the_blocks_of_a_drawing_are_classes_of_the_rtl(name):
    sources = [path.read_text() for path in (ROOT / "rtl").rglob("*.py")]
    classes = {found for text in sources for found in re.findall(r"^class (\w+)", text, re.MULTILINE)}
    blocks = {word for text in texts(FOLDER / f"{name}.svg") for word in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", text)}
    assert len(blocks) > 5
    assert blocks <= classes


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.name)
def test_the_text_of_a_drawing_is_large_enough_on_a_phone(drawing):
    text = drawing.read_text()
    width = int(re.search(r'<svg [^>]*width="(\d+)"', text)[1])
    sizes = [int(each) for each in re.findall(r"(\d+)px", text)]
    assert min(sizes) * PHONE / width >= 10


PROBE = """
<script>
// Returns the names of texts that leave their box or the drawing, or lie on another text or a line.
const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
const touch = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const bad = [];
for (const svg of document.querySelectorAll("svg")) {
  const box = each => each.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")], boxes = [...svg.querySelectorAll("rect:not(.frame)")].map(box);
  const lines = [];
  for (const each of svg.querySelectorAll("polyline.line")) {
    const points = [...each.points].map(p => p.matrixTransform(each.getScreenCTM()));
    for (let i = 1; i < points.length; i++) {
      const x = [points[i - 1].x, points[i].x], y = [points[i - 1].y, points[i].y];
      lines.push({left: Math.min(...x), right: Math.max(...x) + 1, top: Math.min(...y), bottom: Math.max(...y) + 1});
    }
  }
  texts.forEach((text, nth) => {
    const own = box(text), x = (own.left + own.right) / 2, y = (own.top + own.bottom) / 2;
    const around = boxes.filter(b => b.left <= x && x <= b.right && b.top <= y && y <= b.bottom).at(-1);
    if (!inside(own, around)) bad.push(`${text.textContent}: leaves its box`);
    const letters = {...own.toJSON(), top: own.top + 3, bottom: own.bottom - 3};
    if (texts.slice(0, nth).some(other => touch(box(other), letters))) bad.push(`${text.textContent}: on another text`);
    if (lines.some(line => touch(own, line))) bad.push(`${text.textContent}: on a line`);
  });
}
document.title = JSON.stringify([document.querySelectorAll("svg").length, bad]);
</script>"""


def in_browser(text, folder):
    """Return the title of a page after its scripts have run."""
    path = folder / "page.html"
    path.write_text(text)
    command = [program("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=True)
    return html.unescape(re.search("<title>([^<]*)</title>", done.stdout)[1])


@needs("chromium")
def test_the_text_of_a_drawing_stays_in_its_box_and_covers_nothing(tmp_path):
    drawings = "".join(f"<div>{drawing.read_text()}</div>" for drawing in DRAWINGS)
    text = f"<!DOCTYPE html><html><head><title>none</title></head><body>{drawings}{PROBE}</body></html>"
    assert json.loads(in_browser(text, tmp_path)) == [len(DRAWINGS), []]


@pytest.fixture(scope="module")
def report():
    sys.path.insert(0, str(FOLDER))
    try:
        import report
    finally:
        sys.path.remove(str(FOLDER))
    return report


def test_the_picture_of_the_report_shows_its_present_verdicts(report, tmp_path, monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    monkeypatch.setattr(split_page, "_drawn", lambda name, draw: "")  # plots take longer than all figures
    text, (width, height) = report.description(report.PICTURE.read_bytes())
    present = report.verdicts(report.report(tmp_path))
    assert present.count("offload") > 5
    assert text == present, "run python docs/pictures/report.py"
    assert (width, height) == tuple(int(each * report.SCALE) for each in report.SIZE)


@needs("chromium")
def test_a_picture_of_a_page_shows_it(report, tmp_path):
    page = "<body><h2>Plots</h2><section style='background: red; height: 2000px'></section></body>"
    picture = report.shoot(page, tmp_path)
    assert report.description(report.described(picture, "a red page")) == ("a red page", (720, 1290))
