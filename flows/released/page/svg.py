"""Matplotlib's SVG made a part of a page: one element, with ids of its own, colours of the page.

It is read by an XML parser without further safeguards, as it is never anybody else's: matplotlib
wrote it a moment ago, and what people named stands in it as text.
"""

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

_ELEMENTS = frozenset(("defs", "g", "path", "text", "use", "clipPath", "rect"))
_ATTRIBUTES = frozenset(
    ("clip-path", "d", "height", "href", "id", "style", "transform", "width", "x", "y")
)
"""What our figures consist of; nothing of it loads or runs anything."""
_REFERENCE = re.compile(r"(#|url\(#)([^#()]+\)?)")
_FONT = re.compile(r"(?:(?P<weight>\d+) )?(?P<size>[\d.]+px) ")


def embedded(
    svg: bytes, anchor: str, title: str, description: str, colours: Mapping[str, str]
) -> str:
    """Return the figure as an ``svg`` element for a page, named by ``title`` and ``description``.

    ``anchor`` begins all of its ids, ``colours`` gives the page's variables for some colours.
    Without headers and fixed sizes, and in the page's typeface.
    """
    drawn = ElementTree.fromstring(svg)  # noqa: S314 - our own, see above
    page = Element(
        "svg",
        {
            "viewBox": drawn.attrib["viewBox"],
            "role": "img",
            "aria-labelledby": f"{anchor}-title {anchor}-description",
        },
    )
    SubElement(page, "title", {"id": f"{anchor}-title"}).text = title
    SubElement(page, "desc", {"id": f"{anchor}-description"}).text = description
    for one in drawn:
        is_style = any(child.tag.endswith("}style") for child in one)
        if not (is_style or one.tag.endswith("}metadata")):  # a page cannot have these twice
            page.append(_copied(one, anchor, colours))
    return ElementTree.tostring(page, encoding="unicode")


def _copied(element: Element, anchor: str, colours: Mapping[str, str]) -> Element:
    name = _known(element.tag, _ELEMENTS)
    copy = Element(name, dict(_attributes(element, anchor, colours)))
    if name == "text":
        copy.text = element.text
    copy.extend([_copied(one, anchor, colours) for one in element])
    return copy


def _known(full_name: str, names: frozenset[str]) -> str:
    """A name without its namespace, which a page does not spell out."""
    name = full_name.rpartition("}")[2]
    if name not in names:
        raise AssertionError(f"a figure of ours has {name}")
    return name


def _attributes(
    element: Element, anchor: str, colours: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for full_name, value in element.attrib.items():
        name = _known(full_name, _ATTRIBUTES)
        if name == "id":
            if not element.tag.endswith("}g"):  # every group has one, and nothing refers to it
                yield name, f"{anchor}-{value}"
        elif name == "style":
            yield name, "; ".join(_style(value, colours))
        elif name in ("href", "clip-path"):
            yield name, _reference(value, anchor)
        elif not value.startswith("rotate(-0 "):
            yield name, " ".join(value.split())


def _reference(value: str, anchor: str) -> str:
    """What refers to something in the figure, and to nothing else."""
    found = _REFERENCE.fullmatch(value)
    if found is None:
        raise AssertionError(f"a figure of ours refers to {value}")
    return f"{found[1]}{anchor}-{found[2]}"


def _style(style: str, colours: Mapping[str, str]) -> Iterator[str]:
    for declaration in style.split(";"):
        key, _, value = declaration.strip().partition(": ")
        if "url" in value:
            raise AssertionError(f"a figure of ours is styled with {value}")
        if key == "font" and (font := _FONT.match(value)):
            if font["weight"]:
                yield f"font-weight: {font['weight']}"
            yield f"font-size: {font['size']}"
        elif key in ("fill", "stroke") and value in colours:
            yield f"{key}: var({colours[value]})"
        elif key and key != "font-family":
            yield f"{key}: {value}"
