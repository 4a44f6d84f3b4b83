"""Captions in the formats that other programs read: tables, lines of JSON, XMP sidecars, pages with alt text."""
