"""The documentation as a site: it can be searched when it is opened from a folder, without any network."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs, program

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["make", "--silent", "types"], cwd=ROOT, check=True, timeout=HANG)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=HANG, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return folder


def test_pages_take_nothing_from_another_host(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=[\"']?([^\"' >]+)", page.read_text())
        assert loaded
        assert not [each for each in loaded if ":" in each], page.name


def test_links_lead_to_files_of_the_site(site):
    for page in {*site.rglob("*.html")} - {site / "404.html"}:  # whose links are those of a server
        for link in re.findall(r"<a\b[^>]*?href=[\"']?([^\"' >#]+)", page.read_text()):
            assert ":" in link or (page.parent / link).exists(), f"{page.name}: {link}"


def browser(address, folder, *options):
    """Return the page at this address as a browser has it in the end."""
    return subprocess.run(
        [program("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={folder}", "--virtual-time-budget=60000", *options, "--dump-dom", address],
        capture_output=True, text=True, timeout=HANG, check=True,
    ).stdout  # fmt: skip


@needs("chromium")
def test_search_finds_words_in_pages_that_are_opened_from_a_folder(site, tmp_path):
    dom = browser(f"{site.as_uri()}/index.html?q=MULPDU", tmp_path)
    assert re.search(r"\d+ matching documents", dom)
    assert "md-search-result__item" in dom


FRAMES = """
<!DOCTYPE html><html><head><title>none</title></head><body><script>
const show = (page, width) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border: 0; width: ${width}px; height: 900px`;
  frame.onload = () => {
    const images = [...frame.contentDocument.images];
    const bad = images.filter(each => !each.naturalWidth || each.getBoundingClientRect().right > width);
    frame.remove();
    done([images.length, ...bad.map(each => `${page} at ${width}: ${each.getAttribute("src")}`)]);
  };
  frame.src = page;
  document.body.append(frame);
});
(async () => {
  const found = [];
  for (const page of PAGES) for (const width of [360, 1400]) found.push(await show(page, width));
  document.title = JSON.stringify(found);
})();
</script></body></html>"""


@needs("chromium")
def test_pictures_are_shown_whole_on_a_phone_and_on_a_wide_screen(site, tmp_path):
    pages = sorted(page.name for page in site.glob("*.html") if "<img" in page.read_text())
    (site / "frames.html").write_text(FRAMES.replace("PAGES", json.dumps(pages)))
    try:
        dom = browser(f"{(site / 'frames.html').as_uri()}", tmp_path, "--allow-file-access-from-files")
    finally:
        (site / "frames.html").unlink()
    found = json.loads(html.unescape(re.search("<title>([^<]*)</title>", dom)[1]))
    assert len(found) == 2 * len(pages) >= 10
    assert all(count > 0 for count, *_ in found)
    assert not [bad for _, *those in found for bad in those]
