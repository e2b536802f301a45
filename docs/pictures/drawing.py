"""A drawing as SVG: boxes, frames, arrows and text, which stays text.

A drawing is as wide as it can be for a phone to show its text at a legible size. It has paper of its own, light or dark
as the reader's system is, so it can be read on a page of either.
"""

from xml.sax.saxutils import escape

WIDTH = 420
SIZE, SMALL = 15, 13  # of text, in pixels of the drawing

_STYLE = """
text { fill: #1f2328; font: 15px system-ui, sans-serif }
.small { font-size: 13px }
.title { font-weight: 600 }
.middle { text-anchor: middle }
.end { text-anchor: end }
.paper { fill: #ffffff }
rect { stroke-width: 1.5 }
.host { fill: #dbeafe; stroke: #2563a8 }
.device { fill: #dcf3dd; stroke: #2f7d3a }
.other { fill: #f1f1ef; stroke: #75756f }
.frame { fill-opacity: 0.35 }
.line { fill: none; stroke: #57606a; stroke-width: 1.5 }
.dashed { stroke-dasharray: 5 4 }
.signal { fill: none; stroke: #2f7d3a; stroke-width: 1.5 }
.head { fill: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.paper { fill: #10151c }
.host { fill: #17365c; stroke: #6aa5e8 }
.device { fill: #16401f; stroke: #6cc078 }
.other { fill: #2b2e33; stroke: #9a9a94 }
.line { stroke: #a5adb6 }
.signal { stroke: #6cc078 }
.head { fill: #a5adb6 }
}
"""


class Drawing:
    """A drawing of this height, with a title for those who do not see it.

    Coordinates are in pixels, from the upper left corner. A ``kind`` is ``host``, ``device`` or ``other``.
    """

    def __init__(self, title, height):
        self.title = title
        self.height = height
        self._parts = []

    def frame(self, x, y, width, height, kind, title, indent=10):
        """Draw what contains other things; its title stands at its upper edge."""
        self._rectangle(x, y, width, height, f"{kind} frame")
        self.text(x + indent, y + 20, title, "title")

    def box(self, x, y, width, height, kind, name, *lines):
        """Draw a box with a name and smaller lines below it, all of them centred."""
        self._rectangle(x, y, width, height, kind)
        at = y + (height - 18 * len(lines)) / 2 + 5
        self.text(x + width / 2, at, name, "title middle")
        for nth, line in enumerate(lines, 1):
            self.text(x + width / 2, at + 17 * nth, line, "small middle")

    def tile(self, x, y, width, height):
        """Draw the box of a value."""
        self._rectangle(x, y, width, height, "device")

    def text(self, x, y, text, style="small"):
        """Write one line; ``style`` names classes of the style sheet."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(text)}</text>')

    def arrow(self, *points, both=False, dashed=False):
        """Draw a line through the points, with a head at its end, or at both ends."""
        heads = 'marker-end="url(#head)"' + ' marker-start="url(#head)"' * both
        self.line(*points, style="line" + " dashed" * dashed, more=heads)

    def line(self, *points, style="line", more=""):
        """Draw a line through the points."""
        at = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline points="{at}" class="{style}" {more}'.rstrip() + "/>")

    def svg(self):
        """Return the drawing."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img"'
        return "\n".join((
            f'{head} width="{WIDTH}" height="{self.height}">', f"<title>{escape(self.title)}</title>",
            f"<style>{_STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 Z" class="head"/></marker>',
            f'<rect width="{WIDTH}" height="{self.height}" rx="8" class="paper"/>',
            *self._parts, "</svg>", "",
        ))  # fmt: skip

    def _rectangle(self, x, y, width, height, style):
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{style}"/>'
        )
