"""`sightline convert`: checkpoints that other projects released, as Sightline's."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from sightline.errors import printable


def convert(
    checkpoint: Path,
    out: Path,
    *,
    infos: Path | None = None,
    vocabulary: Path | None = None,
    force: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Convert a released checkpoint; it is read without running it. (`sightline data convert` is for features.)

    Reads Up-Down of self-critical.pytorch and Grounded-Image-Captioning (model.pth with infos.pkl), and SCAN, POS-SCAN,
    VSRN and VSE++ (model_best.pth.tar with a vocabulary).

    Args:
        checkpoint: the released file.
        out: where to write, such as updown.safetensors.
        infos: the infos_<id>.pkl of an Up-Down model, if it does not lie beside it.
        vocabulary: the word list of a matcher (.json or .pkl).
        force: write over an existing file.
        quiet: print nothing.
    """
    from sightline.data.convert import refuse_overwrite

    refuse_overwrite(out, force)
    from sightline.checkpoint.foreign_checkpoint import convert_foreign
    from sightline.checkpoint.model_checkpoint import save

    converted = convert_foreign(checkpoint, infos=infos, vocabulary=vocabulary)
    save(out, converted)
    model = converted.model
    told = {
        "path": str(out),
        "kind": model.config.kind,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "words": len(converted.vocabulary.words),
    }
    if json:
        print(json_module.dumps(told))
    elif not quiet:
        print(f"{printable(out)}: {told['kind']}, {told['parameters']:,} parameters, {told['words']:,} words")
