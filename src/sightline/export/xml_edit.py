"""XML that somebody else wrote, changed in one place and written back as it was.

`minidom` keeps prefixes, comments and order, but writes a line break in an attribute so that readers take it for a
space; hence `to_text`.
"""

from __future__ import annotations

from xml.dom import minidom

Node = minidom.Node
_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_ATTRIBUTE = {**_TEXT, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}


def to_text(node: Node) -> str:
    """A document, or a part of it."""
    if isinstance(node, minidom.Document):
        return "\n".join(map(to_text, node.childNodes)) + "\n"
    if isinstance(node, minidom.Element):
        pairs = (f' {name}="{_escaped(value, _ATTRIBUTE)}"' for name, value in node.attributes.items())
        head, inside = f"<{node.tagName}{''.join(pairs)}", "".join(map(to_text, node.childNodes))
        return f"{head}>{inside}</{node.tagName}>" if inside else f"{head}/>"
    if isinstance(node, minidom.Text) and not isinstance(node, minidom.CDATASection):
        return _escaped(node.data, _TEXT)
    return str(node.toxml())  # comments, instructions, unparsed text


def elements(within: Node, space: str, local: str) -> list[minidom.Element]:
    """The elements right inside one that have a name."""
    children = [node for node in within.childNodes if isinstance(node, minidom.Element)]
    return [one for one in children if (one.namespaceURI, one.localName) == (space, local)]


def text_of(element: minidom.Element) -> str:
    """The text in an element and below."""
    inside = [node for node in element.childNodes if isinstance(node, minidom.Text | minidom.Element)]
    return "".join(node.data if isinstance(node, minidom.Text) else text_of(node) for node in inside).strip()


def new_node(document: minidom.Document, name: str, space: str) -> minidom.Element:
    """A new element that says itself what its prefix means, whatever that means around it."""
    element = document.createElementNS(space, name)
    declare(element, name.partition(":")[0], space)
    return element


def declare(element: minidom.Element, prefix: str, space: str) -> None:
    """Say what a prefix means in an element; minidom does not do so by itself."""
    element.setAttributeNS("http://www.w3.org/2000/xmlns/", f"xmlns:{prefix}", space)


def _escaped(text: str, by: dict[str, str]) -> str:
    return "".join(by.get(character, character) for character in text)
