"""The report's page: HTML that needs no network and no script, and its looks.

Everything that is put into a page is escaped unless it is :class:`Markup` already, so that what
people named their arms, clusters and experiments can be read and does nothing.
"""

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Markup(str):
    """HTML that is complete and safe as it stands."""

    __slots__ = ()


Content = str | int | Markup | Sequence[Markup]
"""What may stand in a page: plain text and numbers are escaped, markup is not."""


def markup(template: str, **parts: Content) -> Markup:
    """Fill the ``{names}`` of a template of ours; whatever is no Markup is escaped."""
    return Markup(template.format(**{name: _safe(part) for name, part in parts.items()}))


def _safe(part: Content) -> Markup:
    if isinstance(part, Markup):
        return part
    if isinstance(part, str | int):
        return Markup(html.escape(str(part)))
    return joined(part)


def joined(parts: Iterable[Markup], between: str = "") -> Markup:
    """Markup after markup."""
    return Markup(between.join(parts))


def clean(text: str) -> str:
    """What people named, without characters that no page may hold or that nobody could see."""
    return "".join("\ufffd" if unicodedata.category(one) in ("Cc", "Cs") else one for one in text)


def name(text: str) -> Markup:
    """What people named, kept apart from the direction in which the text around it is read."""
    return markup("<bdi>{text}</bdi>", text=clean(text))


# numbers


def shown(value: float, digits: int = 4) -> str:
    """A number as people read it."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−")


def number(value: float | None, digits: int = 4) -> Markup:
    """A number, with its exact value in the page; a dash where there is none."""
    if value is None or math.isnan(value):
        return Markup("–")
    return markup(
        '<data value="{exact}">{text}</data>', exact=repr(value), text=shown(value, digits)
    )


def count(value: int) -> Markup:
    """A whole number, with its exact value in the page."""
    text = f"{value:,}".replace("-", "−")
    return markup('<data value="{exact}">{text}</data>', exact=value, text=text)


def percent(value: float, digits: int = 3) -> Markup:
    """A share in per cent, with its exact value in the page."""
    text = f"{shown(100 * value, digits)}\u00a0%"
    return markup('<data value="{exact}">{text}</data>', exact=repr(value), text=text)


# blocks


@dataclass(frozen=True)
class Group:
    """Rows of a table under a heading of their own, or under none; first cells head their rows."""

    rows: Sequence[Sequence[Content]]
    heading: Markup | None = None


def paragraph(template: str, **parts: Content) -> Markup:
    """One paragraph."""
    return markup(f"<p>{template}</p>", **parts)


def note(template: str, **parts: Content) -> Markup:
    """A paragraph in small print."""
    return markup(f'<p class="small">{template}</p>', **parts)


def cards(*items: Markup) -> Markup:
    """A list of short texts, in two columns where there is room."""
    listed = [markup("<li>{item}</li>", item=one) for one in items]
    return markup('<ul class="cards">{items}</ul>', items=listed)


def table(
    anchor: str, caption: Content, head: Sequence[Content], groups: Sequence[Group]
) -> Markup:
    """A table that scrolls within its own box where it is too wide."""
    columns = [markup('<th scope="col">{text}</th>', text=text) for text in head]
    return markup(
        '<div class="scroll" role="region" tabindex="0" aria-labelledby="{anchor}-caption">'
        '<table id="{anchor}"><caption id="{anchor}-caption"><span>{caption}</span></caption>'
        "<thead><tr>{columns}</tr></thead>{groups}</table></div>",
        anchor=anchor,
        caption=caption,
        columns=columns,
        groups=[_group(one, len(head)) for one in groups],
    )


def _group(group: Group, width: int) -> Markup:
    heading = Markup("")
    if group.heading is not None:
        heading = markup(
            '<tr class="heading"><th scope="rowgroup" colspan="{width}"><span>{text}</span></th>'
            "</tr>",
            width=width,
            text=group.heading,
        )
    rows = [
        markup(
            '<tr><th scope="row">{first}</th>{others}</tr>',
            first=row[0],
            others=[markup("<td>{cell}</td>", cell=cell) for cell in row[1:]],
        )
        for row in group.rows
    ]
    return markup("<tbody>{heading}{rows}</tbody>", heading=heading, rows=rows)


def figure(svg: str, caption: Content) -> Markup:
    """A figure of :mod:`flows.released.page.figures` with what is to be said of it."""
    return markup(
        "<figure>{svg}<figcaption>{caption}</figcaption></figure>",
        svg=Markup(svg),
        caption=caption,
    )


def beside(left: Markup, right: Markup) -> Markup:
    """Two things beside each other where the screen is wide enough."""
    return markup(
        '<div class="beside"><div>{left}</div><div>{right}</div></div>', left=left, right=right
    )


def swatch(style: str) -> Markup:
    """A patch of the colour that a legend speaks of."""
    return markup('<span class="swatch {style}" aria-hidden="true"></span>', style=style)


def code(text: str, label: str) -> Markup:
    """Something to type."""
    return markup(
        '<pre class="scroll" role="region" tabindex="0" aria-label="{label}">'
        "<code>{text}</code></pre>",
        label=label,
        text=text,
    )


@dataclass(frozen=True)
class Section:
    """A part of the page that has a heading."""

    anchor: str
    title: str
    content: Sequence[Markup]
    link: str
    """The title in a word, to find the section by."""

    def markup(self) -> Markup:
        """The section, labelled by its heading."""
        return markup(
            '<section aria-labelledby="{anchor}"><h2 id="{anchor}">{title}</h2>{content}</section>',
            anchor=self.anchor,
            title=self.title,
            content=self.content,
        )


def document(title: str, head: Markup, sections: Sequence[Section], foot: Markup) -> str:
    """The whole page. Its policy forbids it to load or run anything at all."""
    links = [
        markup('<li><a href="#{anchor}">{title}</a></li>', anchor=one.anchor, title=one.link)
        for one in sections
    ]
    return (
        markup(
            _PAGE,
            title=title,
            style=Markup(_STYLE),
            head=head,
            links=links,
            sections=[one.markup() for one in sections],
            foot=foot,
        )
        + "\n"
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header>{head}</header>
<nav aria-label="On this page"><ul>{links}</ul></nav>
<main>{sections}</main>
<footer>{foot}</footer>
</body>
</html>"""

_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf8; --card: #f3f0e9; --ink: #1b2430; --muted: #55606e; --rule: #d8d3c8;
  --accent: #0b6070; --soft: #a9cdd0; --link: #0b5a86;
  --arm-0: #9aa4b2; --arm-1: #3f97a6; --arm-2: #b4571f; --arm-3: #7553a8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --card: #1e242b; --ink: #e9e6df; --muted: #a9b2bd; --rule: #39424d;
    --accent: #5cc0cc; --soft: #2d6068; --link: #7cc4ec;
    --arm-0: #7c8796; --arm-1: #4fb3c0; --arm-2: #e08a52; --arm-3: #b093e0;
  }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #fff; --card: #fff; --ink: #000; --muted: #444; --rule: #bbb;
    --accent: #0b6070; --soft: #a9cdd0; --link: #000;
    --arm-0: #9aa4b2; --arm-1: #3f97a6; --arm-2: #b4571f; --arm-3: #7553a8;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; max-width: 1240px; padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 3rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1.0625rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans",
    sans-serif;
}
h1, h2, h3, .lead { font-family: Georgia, "Iowan Old Style", "Noto Serif", "DejaVu Serif", serif; }
h1 { font-size: clamp(1.75rem, 5vw, 2.6rem); line-height: 1.15; margin: 0.2rem 0 0.6rem; }
h2 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 0.8rem; }
h3 { font-size: 1.1rem; margin: 1.4rem 0 0.4rem; }
p, ul { margin: 0 0 0.9rem; max-width: 44rem; }
ul { padding-left: 1.2rem; }
li { margin-bottom: 0.35rem; }
a { color: var(--link); }
bdi { overflow-wrap: anywhere; }
.eyebrow, .small, figcaption, caption, footer { color: var(--muted); font-size: 0.925rem; }
.eyebrow { margin: 0; }
.lead { font-size: clamp(1.15rem, 3vw, 1.35rem); line-height: 1.45; max-width: 46rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr));
  gap: 0.75rem; margin: 1.4rem 0; }
.facts div { background: var(--card); border-radius: 0.6rem; padding: 0.7rem 0.9rem; }
.facts dt { color: var(--muted); font-size: 0.875rem; }
.facts dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.cards { list-style: none; padding: 0; max-width: none; display: grid; gap: 0.75rem;
  grid-template-columns: minmax(0, 1fr); }
.cards li { margin: 0; background: var(--card); border-radius: 0.6rem; padding: 0.9rem 1.1rem; }
@media (min-width: 48rem) { .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
nav ul { display: flex; flex-wrap: wrap; gap: 0 1.3rem; list-style: none; padding: 0.4rem 0;
  margin: 0; max-width: none; border-block: 1px solid var(--rule); }
nav li { margin: 0; }
nav a { display: inline-block; padding: 0.3rem 0; }
section { padding-top: 2.4rem; }
.beside { display: grid; gap: 1.2rem 2rem; margin: 1rem 0;
  grid-template-columns: minmax(0, 1fr); }
@media (min-width: 62rem) {
  .beside { grid-template-columns: minmax(0, 4fr) minmax(0, 7fr); align-items: start; }
}
.beside > *, .beside > div > * { min-width: 0; }
figure { margin: 0; max-width: 33rem; }
figure svg { display: block; width: 100%; height: auto; stroke-linejoin: round; }
figcaption { margin-top: 0.5rem; }
.swatch { display: inline-block; width: 1.6em; height: 0.6em; margin-right: 0.3em; }
.swatch.accent { background: var(--accent); }
.swatch.soft { background: var(--soft); }
.swatch.control { background: var(--arm-0); }
.swatch.treatment { background: var(--arm-1); }
.scroll { overflow-x: auto; margin: 0 0 1rem; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; min-width: 100%; font-size: 0.9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.5rem; }
caption span, tr.heading span { display: block; position: sticky; left: 0;
  max-width: min(34rem, calc(100vw - 2rem)); }
th, td { padding: 0.4rem 0.45rem; text-align: right; border-bottom: 1px solid var(--rule);
  vertical-align: baseline; }
td { white-space: nowrap; }
thead th { color: var(--muted); font-weight: 600; font-size: 0.875rem; line-height: 1.3;
  vertical-align: bottom; border-bottom: 2px solid var(--rule); }
thead th:has(bdi) { min-width: 4rem; }
th:first-child { text-align: left; font-weight: 600; padding-left: 0; position: sticky; left: 0;
  background: var(--paper); min-width: 6.5rem; max-width: 14rem; }
tbody th:first-child { font-weight: 500; }
tr.heading th:first-child { padding-top: 1rem; font-weight: 700; max-width: none; }
pre { background: var(--card); border-radius: 0.6rem; padding: 0.9rem 1rem; line-height: 1.45;
  font-size: 0.875rem; }
code { font-family: ui-monospace, "Cascadia Code", Menlo, "DejaVu Sans Mono", monospace; }
p code, li code { font-size: 0.9em; background: var(--card); border-radius: 0.25rem;
  padding: 0.05em 0.3em; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  @page { margin: 16mm 14mm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  html { font-size: 10pt; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  nav { display: none; }
  section { padding-top: 1.2rem; }
  h2, h3 { break-after: avoid; }
  figure, tr, pre, .facts { break-inside: avoid; }
  figure { max-width: 11cm; }
  .cards { gap: 0.5rem 1.2rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .facts { grid-template-columns: repeat(6, auto); }
  .cards li, .facts div { padding: 0; }
  .scroll { overflow: visible; }
  table, thead th { font-size: 8pt; }
  th, td { padding: 0.2rem 0.35rem; }
  td { white-space: normal; }
  th:first-child { position: static; }
  pre { white-space: pre-wrap; border: 1px solid var(--rule); }
}
"""
