"""Hooks of MkDocs: they add pages from outside docs: README.md as index, and the source files that pages link to.

A link to a source file leads to a page with its text, so the site works without a host for the source.
"""

import gc
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LANGUAGES = {".py": "python", ".c": "c", ".toml": "toml", ".j2": "jinja", ".json": "json", ".v": "verilog",
             ".tcl": "tcl", ".core": "yaml"}


def _address(path):
    """Return the address in the site of a file of the repository; None if there is no such file."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md" if (ROOT / path).exists() else None


def _linked(text, here):
    """Return ``text`` of the file ``here`` with the links of the site, and the source files that it links to."""
    sources = set()

    def link(match):
        target = match[1]
        if ":" in target:
            return target
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        address = _address(path)
        if address is None:
            return target  # MkDocs reports the broken link
        if address.startswith("source/"):
            sources.add(path)
        return posixpath.relpath(address, posixpath.dirname(_address(here)) or ".")

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts), sources


def on_startup(command, dirty):
    """Make a build without the garbage collector, which would look at all pages again and again."""
    if command == "build":
        gc.disable()


def on_files(files, config):
    """Add the pages from outside docs."""
    sources = set()
    for path, address in PAGES.items():
        text, more = _linked((ROOT / path).read_text(), path)
        files.append(File.generated(config, address, content=text))
        sources |= more
    for page in sorted((ROOT / "docs").glob("*.md")):
        sources |= _linked(page.read_text(), f"docs/{page.name}")[1]
    for path in sorted(sources):
        file = ROOT / path
        if file.is_dir():
            names = sorted(each.name for each in file.iterdir() if not each.name.startswith(("_", ".")))
            text = "\n".join(f"- `{name}`" for name in names)
        else:
            text = f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n````"
        # Searches should find pages of documentation, not source code.
        front = "---\nsearch:\n  exclude: true\n---\n"
        files.append(File.generated(config, f"source/{path}.md", content=f"{front}\n# {path}\n\n{text}\n"))
    return files


def on_page_markdown(markdown, page, config, files):
    """Replace links to source files by links to their pages."""
    uri = page.file.src_uri
    return markdown if uri.startswith("source/") or uri in PAGES.values() else _linked(markdown, f"docs/{uri}")[0]
