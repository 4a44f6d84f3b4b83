"""Pictures: words on boxes, attention maps, gates, retrieval sheets, as PNG or one self-contained page."""
