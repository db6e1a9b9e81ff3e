"""A plot of shares as SVG: a horizontal bar a row, a line at 1, and a mark where the row's target is.

The text is text, the colours follow the viewer's light or dark scheme, and title and desc tell what is drawn to those who
do not see it."""
import math
from typing import NamedTuple, Optional
from xml.sax.saxutils import escape


class Bar(NamedTuple):
    name: str
    share: float             # of the roof; the bar's length
    target: Optional[float]  # None: there is none
    detail: str              # what a pointer on the bar shows


ROW, BAR = 26, 16         # heights, in pixels
TOP, BOTTOM = 68, 40      # room above and below the rows
PLOT = 460                # width of the bars' field
CHARACTER = 7.2           # at most as wide is one on average, at 13 pixels
RIGHT = 140               # room for the numbers beside the field

STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .heading { font-size: 16px; font-weight: 600; }
    .faint { fill: #57606a; }
    .page { fill: #ffffff; }
    .bar { fill: #2f6fb0; }
    .short { fill: #b35900; }
    .grid { stroke: #d0d7de; }
    .one { stroke: #1f2328; stroke-width: 1.5; }
    .target { stroke: #1f2328; stroke-width: 2.5; }
    .halo { stroke: #ffffff; stroke-width: 6; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .faint { fill: #9aa4af; }
      .page { fill: #0d1117; }
      .bar { fill: #4a90d9; }
      .short { fill: #db7d2b; }
      .grid { stroke: #30363d; }
      .one, .target { stroke: #e6edf3; }
      .halo { stroke: #0d1117; }
    }
"""


def label(bar):
    """The number of a bar, right of the field, and what was wanted where it falls short of that."""
    return "%.2f" % bar.share + (", wanted %.2f" % bar.target if falls_short(bar) else "")


def falls_short(bar):
    return bar.target is not None and bar.share < bar.target


def line(kind, x, top, bottom):
    return '<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (kind, x, top, x, bottom)


def text(x, y, content, anchor="start", kind=None):
    return '<text%s x="%.1f" y="%.1f" text-anchor="%s">%s</text>' % (' class="%s"' % kind if kind else "", x, y, anchor,
                                                                 escape(content))


def scale_end(bars):
    """Where the axis ends: a little beyond 1, or beyond the longest bar and the highest target, in quarters."""
    longest = max([1.0] + [bar.share for bar in bars] + [bar.target for bar in bars if bar.target is not None])
    return math.floor(longest * 4) / 4 + 0.25


def description(bars):
    """The plot in words."""
    shares = ("%s: %.2f%s" % (bar.name, bar.share, "" if bar.target is None else " (wanted %.2f)" % bar.target)
              for bar in bars)
    return "Horizontal bars, one for each measured work: the share of the roof that bounds it. A line marks 1. %s." % (
        "; ".join(shares))


def svg(heading, bars):
    """The document.  Raises ValueError where there is nothing to draw or a share is no number."""
    if not bars:
        raise ValueError("no bars to draw")
    for bar in bars:
        if not math.isfinite(bar.share) or bar.share < 0:
            raise ValueError("%s: a share of %r cannot be drawn" % (bar.name, bar.share))
    left = 24 + CHARACTER * max(len(bar.name) for bar in bars)
    bottom, end = TOP + ROW * len(bars), scale_end(bars)
    width, height = left + PLOT + RIGHT, bottom + BOTTOM

    def place(share):
        return left + PLOT * share / end

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" '
           'aria-labelledby="title desc">' % (width, height, width, height),
           '<title id="title">%s</title>' % escape(heading), '<desc id="desc">%s</desc>' % escape(description(bars)),
           "<style>%s</style>" % STYLE, '<rect class="page" width="100%" height="100%"/>',
           text(16, 26, heading, kind="heading"),
           text(16, 48, "Longer is better; the line at 1 is the roof, a mark in a row what is wanted there.", kind="faint")]
    for quarter in range(int(end * 4) + 1):
        x = place(quarter / 4)
        out.append(line("one" if quarter == 4 else "grid", x, TOP - 4, bottom + 4))
        out.append(text(x, bottom + 22, "%g" % (quarter / 4), "middle", "faint"))
    for i, bar in enumerate(bars):
        top = TOP + ROW * i + (ROW - BAR) / 2
        base = top + BAR - 3
        out += ["<g>", "<title>%s</title>" % escape(bar.detail), text(left - 8, base, bar.name, "end"),
                '<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="2"/>' % (
                    "short" if falls_short(bar) else "bar", left, top, place(bar.share) - left, BAR)]
        if bar.target is not None:
            mark = place(bar.target)
            out += [line("halo", mark, top, top + BAR), line("target", mark, top - 2, top + BAR + 2)]
        out += [text(left + PLOT + 12, base, label(bar)), "</g>"]
    return "\n".join(out + ["</svg>"]) + "\n"
