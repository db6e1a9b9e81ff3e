"""Plots as SVG: bars of shares with a line at 1 and a mark at each target, and panels of lines on logarithmic axes.

The colours follow the viewer's light or dark scheme, and title and desc describe the plot to readers who do not see it."""
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
CHARACTER = 7.2           # the most that a character takes on average, at 13 pixels
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
    """The number of a bar, right of the field, and the target if the bar falls short of it."""
    return "%.2f" % bar.share + (", target %.2f" % bar.target if falls_short(bar) else "")


def falls_short(bar):
    return bar.target is not None and bar.share < bar.target


def line(kind, x, y, to_x, to_y):
    return '<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (kind, x, y, to_x, to_y)


def text(x, y, content, anchor="start", kind=None):
    return '<text%s x="%.1f" y="%.1f" text-anchor="%s">%s</text>' % (' class="%s"' % kind if kind else "", x, y, anchor,
                                                                 escape(content))


def document(heading, note, words, size, parts, style=""):
    """The SVG of these parts below a heading and a note; `words` describe the plot."""
    return "\n".join([
        '<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" '
        'aria-labelledby="title desc">' % (size + size), '<title id="title">%s</title>' % escape(heading),
        '<desc id="desc">%s</desc>' % escape(words), "<style>%s</style>" % (STYLE + style),
        '<rect class="page" width="100%" height="100%"/>', text(16, 26, heading, kind="heading"),
        text(16, 48, note, kind="faint"), *parts, "</svg>"]) + "\n"


def scale_end(bars):
    """The end of the axis, in quarters: a little beyond 1, the longest bar and the highest target."""
    longest = max([1.0] + [bar.share for bar in bars] + [bar.target for bar in bars if bar.target is not None])
    return math.floor(longest * 4) / 4 + 0.25


def description(bars):
    """The plot in words."""
    shares = ("%s: %.2f%s" % (bar.name, bar.share, "" if bar.target is None else " (target %.2f)" % bar.target)
              for bar in bars)
    return "Horizontal bars, one for each measured work: the share of the roof that bounds it. A line marks 1. %s." % (
        "; ".join(shares))


def svg(heading, bars):
    """The document.  Raises ValueError if there is nothing to draw or a share is no number."""
    if not bars:
        raise ValueError("no bars to draw")
    for bar in bars:
        if not math.isfinite(bar.share) or bar.share < 0:
            raise ValueError("%s: a share of %r cannot be drawn" % (bar.name, bar.share))
    left = 24 + CHARACTER * max(len(bar.name) for bar in bars)
    bottom, end, parts = TOP + ROW * len(bars), scale_end(bars), []

    def place(share):
        return left + PLOT * share / end

    for quarter in range(int(end * 4) + 1):
        x = place(quarter / 4)
        parts.append(line("one" if quarter == 4 else "grid", x, TOP - 4, x, bottom + 4))
        parts.append(text(x, bottom + 22, "%g" % (quarter / 4), "middle", "faint"))
    for i, bar in enumerate(bars):
        top = TOP + ROW * i + (ROW - BAR) / 2
        base = top + BAR - 3
        parts += ["<g>", "<title>%s</title>" % escape(bar.detail), text(left - 8, base, bar.name, "end"),
                  '<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="2"/>' % (
                      "short" if falls_short(bar) else "bar", left, top, place(bar.share) - left, BAR)]
        if bar.target is not None:
            mark = place(bar.target)
            parts += [line("halo", mark, top, mark, top + BAR), line("target", mark, top - 2, mark, top + BAR + 2)]
        parts += [text(left + PLOT + 12, base, label(bar)), "</g>"]
    return document(heading, "Longer is better; the line at 1 is the roof, a mark in a row its target.", description(bars),
                    (left + PLOT + RIGHT, bottom + BOTTOM), parts)


class Line(NamedTuple):
    name: str
    points: list  # (x, y), at least two, both above 0, x rising


class Panel(NamedTuple):
    name: str
    across: str   # what x is
    lines: list   # Line


PANEL, PANEL_HEIGHT = 400, 250                              # with all of its room
AROUND = {"left": 64, "right": 20, "top": 40, "bottom": 48}  # of a panel's field
DASHES = ("", "7 4", "2 3")


def slope(one, other):
    """Of the line between two points on logarithmic axes."""
    return math.log(other[1] / one[1]) / math.log(other[0] / one[0])


def powers(low, high, base):
    """base^n, from the one at or below `low` to the one at or above `high`; at least two."""
    first = math.floor(math.log(low, base) + 1e-9)
    last = max(math.ceil(math.log(high, base) - 1e-9), first + 1)
    return [base ** n for n in range(first, last + 1)]


def seconds_text(value):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size * 0.999:
            return "%g %s" % (float("%.3g" % (value / size)), unit)
    return "%g ns" % float("%.3g" % (value / 1e-9))


def curve(number, places):
    """A panel's line through these places, dashed by its number."""
    dashes = DASHES[number % len(DASHES)]
    return '<polyline class="curve"%s points="%s"/>' % (' stroke-dasharray="%s"' % dashes if dashes else "",
                                                        " ".join("%.1f,%.1f" % each for each in places))


def panel_parts(panel, left, top):
    """A panel's elements, its upper left corner there."""
    xs = [x for line_ in panel.lines for x, _ in line_.points]
    ys = [y for line_ in panel.lines for _, y in line_.points]
    ticks_x, ticks_y = powers(min(xs), max(xs), 2), powers(min(ys), max(ys), 10)
    x0, x1 = left + AROUND["left"], left + PANEL - AROUND["right"]
    y0, y1 = top + PANEL_HEIGHT - AROUND["bottom"], top + AROUND["top"]

    def place(x, y):
        across = math.log(x / ticks_x[0]) / math.log(ticks_x[-1] / ticks_x[0])
        up = math.log(y / ticks_y[0]) / math.log(ticks_y[-1] / ticks_y[0])
        return x0 + (x1 - x0) * across, y0 + (y1 - y0) * up

    out = ["<g>", text(left + 8, top + 22, panel.name)]
    every = math.ceil(len(ticks_x) / 7)
    for i, tick in enumerate(ticks_x):
        at = place(tick, ticks_y[0])[0]
        out.append(line("grid", at, y1, at, y0))
        if i % every == 0:
            out.append(text(at, y0 + 16, format(tick, ",") if tick >= 1 else "%g" % tick, "middle", "faint small"))
    for tick in ticks_y:
        at = place(ticks_x[0], tick)[1]
        out.append(line("grid", x0, at, x1, at))
        out.append(text(x0 - 6, at + 4, seconds_text(tick), "end", "faint small"))
    out.append(text((x0 + x1) / 2, y0 + 36, panel.across, "middle", "faint small"))
    for n, line_ in enumerate(panel.lines):
        places = [place(*point) for point in line_.points]
        out.append(curve(n, places))
        for (x, y), (at_x, at_y) in zip(line_.points, places):
            out.append('<circle class="dot" cx="%.1f" cy="%.1f" r="3"><title>%s</title></circle>' % (
                at_x, at_y, escape("%s, %s: %s" % (line_.name, format(x, ","), seconds_text(y)))))
        for one, other, (ax, ay), (bx, by) in zip(line_.points, line_.points[1:], places, places[1:]):
            # Beside the middle of the segment: above the first line, below the others.
            out.append(text((ax + bx) / 2 - 4, (ay + by) / 2 + (-6 if n == 0 else 16), "%.1f" % slope(one, other),
                            "end" if n == 0 else "start", "faint tiny"))
    if len(panel.lines) > 1:
        for n, line_ in enumerate(panel.lines):
            y = y1 + 12 + 15 * n
            out.append(curve(n, [(x0 + 8, y - 4), (x0 + 34, y - 4)]))
            out.append(text(x0 + 40, y, line_.name, kind="small"))
    return out + ["</g>"]


def lines_description(panels):
    each = ("%s, %s: %s" % (panel.name, line_.name, ", ".join("%s at %s" % (seconds_text(y), format(x, ","))
                                                             for x, y in line_.points))
            for panel in panels for line_ in panel.lines)
    return "Times on logarithmic axes, a panel for each thing that grows. %s." % "; ".join(each)


def curves(heading, panels, columns=2):
    """The document: panels of lines on logarithmic axes, each segment with its slope.  Raises ValueError if there is
    nothing to draw or a number has no place on such an axis."""
    if not panels or not all(panel.lines for panel in panels):
        raise ValueError("no lines to draw")
    for panel in panels:
        for line_ in panel.lines:
            if len(line_.points) < 2 or not all(math.isfinite(value) and value > 0 for point in line_.points
                                               for value in point):
                raise ValueError("%s, %s: these points cannot be drawn" % (panel.name, line_.name))
    style = """
    .small { font-size: 12px; }
    .tiny { font-size: 10px; }
    .curve { fill: none; stroke: #2f6fb0; stroke-width: 2; }
    .dot { fill: #2f6fb0; }
    @media (prefers-color-scheme: dark) {
      .curve { stroke: #4a90d9; }
      .dot { fill: #4a90d9; }
    }
"""
    parts = [part for i, panel in enumerate(panels)
             for part in panel_parts(panel, 8 + i % columns * PANEL, TOP - 8 + i // columns * PANEL_HEIGHT)]
    size = columns * PANEL + 16, TOP + math.ceil(len(panels) / columns) * PANEL_HEIGHT
    return document(heading, "Logarithmic axes; the number at a segment is its slope.", lines_description(panels), size, parts,
                    style)
