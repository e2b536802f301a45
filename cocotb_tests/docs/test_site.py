"""The documentation as a site: it can be searched when it is opened from a folder, without any network."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs, program

ROOT = Path(__file__).parents[2]
OPTIONS = re.search(r"/mkdocs (build.*)", (ROOT / "Makefile").read_text())[1].split()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["make", "--silent", "types"], cwd=ROOT, check=True, timeout=HANG)
    command = [sys.executable, "-m", "mkdocs", *OPTIONS, "--site-dir", str(folder)]
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
    const inside = frame.contentDocument, images = [...inside.images];
    const bad = images.filter(each => !each.naturalWidth || each.getBoundingClientRect().right > width)
      .map(each => each.getAttribute("src"));
    // Diagrams of letters have arrows; what has ● also is the output of rnic demo.
    const drawn = [...inside.querySelectorAll("pre code")].filter(each => /^[^●]*[▸◂▾▴][^●]*$/.test(each.textContent));
    bad.push(...drawn.filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent.slice(0, 50)));
    frame.remove();
    done([images.length + drawn.length, ...bad.map(each => `${page} at ${width}: ${each}`)]);
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


def test_the_registers_come_behind_all_guides():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [page for each in nav for page in leaves(each)]
    registers = [nth for nth, page in enumerate(pages) if page.endswith("registers.md")]
    others = ("registers.md", "contributing.md", "changelog.md")
    guides = [nth for nth, page in enumerate(pages) if not page.endswith(others)]
    assert len(registers) == 8
    assert min(registers) > max(guides)


def leaves(entry):
    """Return the pages of an entry of the navigation."""
    [value] = entry.values()
    return [value] if isinstance(value, str) else [page for each in value for page in leaves(each)]


GOOD = {"README": "[a](docs/known.md)", "CONTRIBUTING": "", "CHANGELOG": "",
        "docs/known": "# Known\n\n## There\n\n[a](index.md) [b](known.md#there)"}  # fmt: skip
DEAD = {"README": "[a](docs/nowhere.md)", "docs/page": "[a](nowhere.md)", "docs/source": "[a](../rtl/nowhere.py)",
        "docs/anchor": "[a](known.md#nowhere)", "docs/picture": "![a](pictures/nowhere.svg)"}  # fmt: skip


@pytest.mark.parametrize(("dead", "status"), [({}, 0), (DEAD, 1)], ids=("none", "all"))
def test_a_dead_link_fails_the_build(dead, status, tmp_path):
    """The project's own configuration builds a page with each dead link, by the options of `make site`."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config |= {"plugins": ["search"], "nav": [{"Start": "index.md"}, {"Known": "known.md"}], "extra": {},
               "not_in_nav": "*.md"}  # fmt: skip
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "docs" / "hooks.py", tmp_path / "docs")
    for name, text in (GOOD | dead).items():
        (tmp_path / f"{name}.md").write_text(text)
    done = subprocess.run([sys.executable, "-m", "mkdocs", *OPTIONS], cwd=tmp_path, check=False,
                          capture_output=True, text=True, timeout=HANG,
                          env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})  # fmt: skip
    assert done.returncode == status, done.stderr
    named = set(re.findall(r"^WARNING .*'(\S+)\.md' contains a link '(\S+)',", done.stderr, re.MULTILINE))
    wanted = {("index", "nowhere.md"), ("page", "nowhere.md"), ("source", "../rtl/nowhere.py"),
              ("anchor", "known.md#nowhere"), ("picture", "pictures/nowhere.svg")}  # fmt: skip
    assert named == (wanted if dead else set())
    assert not dead or f"{len(wanted)} warnings in strict mode" in done.stderr + done.stdout


@needs("chromium")
def test_pictures_and_diagrams_are_shown_whole_on_a_phone_and_on_a_wide_screen(site, tmp_path):
    texts = {page.name: page.read_text() for page in site.glob("*.html")}
    pages = sorted(name for name, text in texts.items() if re.search("<img|<pre[^●]*[▸◂▾▴]", text))
    (site / "frames.html").write_text(FRAMES.replace("PAGES", json.dumps(pages)))
    try:
        dom = browser(f"{(site / 'frames.html').as_uri()}", tmp_path, "--allow-file-access-from-files")
    finally:
        (site / "frames.html").unlink()
    found = json.loads(html.unescape(re.search("<title>([^<]*)</title>", dom)[1]))
    assert len(found) == 2 * len(pages) >= 10
    assert sum(count > 0 for count, *_ in found) >= 10
    assert not [bad for _, *those in found for bad in those]
