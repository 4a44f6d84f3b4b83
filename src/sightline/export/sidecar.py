"""XMP sidecars: the caption of a photo in a file beside it, where photo managers look for it.

The sidecar of `photo.jpg` is `photo.jpg.xmp`, the name that digiKam, darktable and Immich read. `photo.xmp` would also
be that of `photo.cr2` beside it, whose sidecar holds how a raw file was developed. The caption is `dc:description`,
which every program shows, and IPTC's alternative text, which is what it is for; both for the language `x-default`.

Whatever else a sidecar holds is kept. A description that somebody else wrote is kept too, unless it is to be replaced:
`sightline:said` remembers what Sightline wrote.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from sightline.errors import DataError, NameTooLongError
from sightline.files import PathLike, atomic_write, unwritable

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XML = "http://www.w3.org/XML/1998/namespace"
OWN = "urn:sightline:xmp:1"
PROPERTIES = {
    "dc:description": "http://purl.org/dc/elements/1.1/",
    "Iptc4xmpCore:AltTextAccessibility": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
}
LARGEST = 16 * 2**20  # bytes of a sidecar that is read
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = _TEXT | str.maketrans({'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})
_NEW = f"""<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{RDF}"><rdf:Description rdf:about=""/></rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>"""


def sidecar_of(photo: PathLike) -> Path:
    return Path(photo).with_name(f"{Path(photo).name}.xmp")


def write_sidecar(
    photo: PathLike, sentence: str, *, replace: bool = False, bad: Callable[[DataError], None] | None = None
) -> None:
    """Write a sentence about a photo into its sidecar, which is made if it is missing.

    `replace` what somebody else said, too. `bad` is given the error of a sidecar that is left as it is; by default it
    is raised.
    """
    path = sidecar_of(photo)
    try:
        before = _read(path)
        after = description_of(before, sentence, replace=replace, where=path)
        if after != before:
            with atomic_write(path) as file:
                file.write(after)
    except (_LeftError, NameTooLongError) as error:
        if bad is None:
            raise
        bad(error)


def description_of(sidecar: bytes | None, sentence: str, *, replace: bool = False, where: PathLike = "") -> bytes:
    """The bytes of a sidecar with a sentence in it; everything else in them stays. None makes a new one.

    A DataError where they are no XMP, or tell something else already and are not to be replaced.
    """
    try:
        raw = _NEW.encode() if sidecar is None else sidecar
        if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:  # no XMP has them, and entities can be made to explode
            raise ValueError("a document type")
        document = minidom.parseString(raw)
        descriptions = _descriptions(document)
        before = [one.getAttributeNS(OWN, "said") for one in descriptions if one.hasAttributeNS(OWN, "said")]
        for name, space in PROPERTIES.items():
            text = _property(descriptions, name, space)
            if replace or text in (None, "", sentence, *before):
                _set_property(document, descriptions, name, space, sentence)
            elif name == "dc:description":
                what = "this sidecar has a description that Sightline did not write; it was left as it is"
                raise _LeftError(what, where=where or None, fix="use --force to replace it")
        for one in descriptions:
            if one.hasAttributeNS(OWN, "said"):
                one.removeAttributeNS(OWN, "said")
        _declare(descriptions[0], "sightline", OWN)
        descriptions[0].setAttributeNS(OWN, "sightline:said", sentence)
        return _to_text(document).encode()
    except (ExpatError, ValueError, LookupError, RecursionError) as error:
        what = "this sidecar is not XMP; it was left as it is"
        raise _LeftError(what, where=where or None, fix="move it away") from error


class _LeftError(DataError):
    """A sidecar that is left as it is."""


def _read(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > LARGEST:
            raise _LeftError("this is too large for a sidecar", where=path, fix="remove it, or rename it")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise unwritable(path, error) from error
        what = f"this sidecar cannot be read ({error.strerror})"
        raise _LeftError(what, where=path, fix="change its permissions") from error


def _descriptions(document: minidom.Document) -> list[minidom.Element]:
    """The rdf:Description elements that tell of the photo; one is made where there is none."""
    roots = document.getElementsByTagNameNS(RDF, "RDF")
    if not roots:
        raise ValueError("no rdf:RDF")
    descriptions = _elements(roots[0], RDF, "Description")
    if not descriptions:
        new = _new_node(document, "rdf:Description", RDF)
        new.setAttributeNS(RDF, "rdf:about", "")
        roots[0].appendChild(new)
        descriptions = [new]
    return descriptions


def _property(descriptions: list[minidom.Element], name: str, space: str) -> str | None:
    """The text of a property in x-default, or in whatever form it has; None where it is not there."""
    local = name.partition(":")[2]
    for one in descriptions:
        if one.hasAttributeNS(space, local):
            return str(one.getAttributeNS(space, local))
        for element in _elements(one, space, local):
            items = element.getElementsByTagNameNS(RDF, "li")
            default = [item for item in items if item.getAttributeNS(XML, "lang") == "x-default"]
            return _text_of(default[0] if default else element)
    return None


def _set_property(
    document: minidom.Document, descriptions: list[minidom.Element], name: str, space: str, sentence: str
) -> None:
    """Set the x-default of a property; its other languages stay."""
    local, element = name.partition(":")[2], _new_node(document, name, space)
    item, alternatives = document.createElementNS(RDF, "rdf:li"), _new_node(document, "rdf:Alt", RDF)
    item.setAttributeNS(XML, "xml:lang", "x-default")
    item.appendChild(document.createTextNode(sentence))
    alternatives.appendChild(item)
    element.appendChild(alternatives)
    for one in descriptions:
        if one.hasAttributeNS(space, local):
            one.removeAttributeNS(space, local)
        for before in _elements(one, space, local):
            for other in before.getElementsByTagNameNS(RDF, "li"):
                if other.getAttributeNS(XML, "lang") not in ("", "x-default"):
                    alternatives.appendChild(other)
            if element.parentNode is None:
                one.insertBefore(element, before)
            one.removeChild(before)
    if element.parentNode is None:
        descriptions[0].appendChild(element)


def _to_text(node: minidom.Node) -> str:
    """A document, or a part of it, as text.

    `minidom` keeps prefixes, comments and order, but writes a line break in an attribute so that readers take it for a
    space; hence this.
    """
    if isinstance(node, minidom.Document):
        return "\n".join(map(_to_text, node.childNodes)) + "\n"
    if isinstance(node, minidom.Element):
        pairs = (f' {name}="{value.translate(_ATTRIBUTE)}"' for name, value in node.attributes.items())
        tag, inside = f"<{node.tagName}{''.join(pairs)}", "".join(map(_to_text, node.childNodes))
        return f"{tag}>{inside}</{node.tagName}>" if inside else f"{tag}/>"
    if isinstance(node, minidom.Text) and not isinstance(node, minidom.CDATASection):
        return node.data.translate(_TEXT)
    return str(node.toxml())  # comments, instructions, unparsed text


def _elements(within: minidom.Node, space: str, local: str) -> list[minidom.Element]:
    children = [node for node in within.childNodes if isinstance(node, minidom.Element)]
    return [one for one in children if (one.namespaceURI, one.localName) == (space, local)]


def _text_of(element: minidom.Element) -> str:
    inside = [node for node in element.childNodes if isinstance(node, minidom.Text | minidom.Element)]
    return "".join(node.data if isinstance(node, minidom.Text) else _text_of(node) for node in inside).strip()


def _new_node(document: minidom.Document, name: str, space: str) -> minidom.Element:
    """A new element that declares its own prefix, so that it does not depend on the elements around it."""
    element = document.createElementNS(space, name)
    _declare(element, name.partition(":")[0], space)
    return element


def _declare(element: minidom.Element, prefix: str, space: str) -> None:
    """Say what a prefix means in an element; minidom does not do so by itself."""
    element.setAttributeNS("http://www.w3.org/2000/xmlns/", f"xmlns:{prefix}", space)
