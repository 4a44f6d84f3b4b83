"""XMP sidecars: what is written, what is kept, what is refused."""

import xml.etree.ElementTree as ET

import pytest

from sightline.errors import DataError
from sightline.export.sidecar import RDF, description_of, sidecar_of, write_sidecar

DC = "{http://purl.org/dc/elements/1.1/}"
IPTC = "{http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/}"
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# As darktable, digiKam and Lightroom write them: attributes, other prefixes, comments, lists, several descriptions.
OTHERS = """<?xml version="1.0" encoding="UTF-8"?>
<!-- by hand -->
<xm:xmpmeta xmlns:xm="adobe:ns:meta/" xm:xmptk="XMP Core 4.4.0">
 <r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <r:Description r:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4" xmp:Label="one&#10;two">
   <d:subject xmlns:d="http://purl.org/dc/elements/1.1/"><r:Bag><r:li>beach &amp; sun</r:li></r:Bag></d:subject>
   %s
  </r:Description>
  <r:Description r:about="" xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/" crs:Exposure2012="+0.5"/>
 </r:RDF>
</xm:xmpmeta>"""
SAID = (
    '<dc:description xmlns:dc="http://purl.org/dc/elements/1.1/"><r:Alt>'
    '<r:li xml:lang="x-default">Grandma.</r:li><r:li xml:lang="de">Oma.</r:li></r:Alt></dc:description>'
)


def descriptions(raw, name=f"{DC}description"):
    root = ET.fromstring(raw)
    return {item.get(LANG): item.text for found in root.iter(name) for item in found.iter(f"{{{RDF}}}li")}


def test_a_new_sidecar_has_the_sentence_as_description_and_as_alternative_text():
    raw = description_of(None, 'A "dog" & <cat>.')
    assert descriptions(raw) == {"x-default": 'A "dog" & <cat>.'}
    assert descriptions(raw, f"{IPTC}AltTextAccessibility") == descriptions(raw)
    assert raw.startswith('<?xpacket begin="\ufeff"'.encode())


def test_what_sightline_wrote_it_writes_anew():
    first = description_of(None, "A dog.")
    second = description_of(first, "A cat.")
    assert descriptions(second) == {"x-default": "A cat."}
    assert description_of(second, "A cat.") == second


def test_other_metadata_stays():
    raw = description_of((OTHERS % "").encode(), "A dog.")
    root = ET.fromstring(raw)
    assert descriptions(raw) == {"x-default": "A dog."}
    assert next(item.text for item in root.iter(f"{{{RDF}}}li")) == "beach & sun"
    attributes = {name: value for found in root.iter(f"{{{RDF}}}Description") for name, value in found.items()}
    assert attributes["{http://ns.adobe.com/xap/1.0/}Rating"] == "4"
    assert attributes["{http://ns.adobe.com/xap/1.0/}Label"] == "one\ntwo"
    assert attributes["{http://ns.adobe.com/camera-raw-settings/1.0/}Exposure2012"] == "+0.5"
    assert b"<!-- by hand -->" in raw


def test_a_description_of_somebody_else_stays_unless_it_is_to_be_replaced():
    raw = (OTHERS % SAID).encode()
    with pytest.raises(DataError, match="did not write"):
        description_of(raw, "A dog.")
    assert descriptions(description_of(raw, "A dog.", replace=True)) == {"x-default": "A dog.", "de": "Oma."}


def test_a_description_that_was_edited_after_sightline_wrote_it_stays():
    edited = description_of(None, "A dog.").replace(b">A dog.<", b">My dog.<")
    with pytest.raises(DataError, match="did not write"):
        description_of(edited, "A cat.")


def test_alternative_text_of_somebody_else_stays_beside_a_new_description():
    rex = '<r:Alt><r:li xml:lang="x-default">Rex.</r:li></r:Alt>'
    theirs = f'<i:AltTextAccessibility xmlns:i="{IPTC[1:-1]}">{rex}</i:AltTextAccessibility>'
    raw = description_of((OTHERS % theirs).encode(), "A dog.")
    assert descriptions(raw, f"{IPTC}AltTextAccessibility") == {"x-default": "Rex."}
    assert descriptions(raw) == {"x-default": "A dog."}


def test_an_rdf_without_descriptions_gets_one():
    raw = description_of(f'<rdf:RDF xmlns:rdf="{RDF}"/>'.encode(), "A dog.")
    assert descriptions(raw) == {"x-default": "A dog."}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no xml",
        b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>",
        b"<html/>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
        b"\xff\xfe\x00",
        b"<a>" * 50_000 + b"</a>" * 50_000,
    ],
    ids=["empty", "text", "cut", "no rdf", "entities", "binary", "deep"],
)
def test_what_is_no_xmp_is_left_as_it_is(tmp_path, raw):
    photo = tmp_path / "photo.jpg"
    sidecar_of(photo).write_bytes(raw)
    with pytest.raises(DataError, match="left as it is"):
        write_sidecar(photo, "A dog.", replace=True)
    assert sidecar_of(photo).read_bytes() == raw


def test_a_sidecar_is_called_by_the_whole_name_of_its_photo(tmp_path):
    write_sidecar(tmp_path / "ü b.JPG", "A dog.")
    assert [path.name for path in tmp_path.iterdir()] == ["ü b.JPG.xmp"]
    bad = []
    (tmp_path / "ü b.JPG.xmp").write_text("broken")
    write_sidecar(tmp_path / "ü b.JPG", "A dog.", bad=bad.append)
    assert "ü b.JPG.xmp" in str(bad[0])
