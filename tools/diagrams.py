"""What the diagrams of the models show: blocks in columns, the equations they implement, the parameters they own.

A block names its parameters by the beginning of their names, so that the counts are those of the real model and every
parameter belongs to exactly one block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.jran import JRANConfig
from sightline.models.jran_trans import JRANTransConfig
from sightline.models.neuraltalk2 import NeuralTalk2Config
from sightline.models.r2m import R2MConfig
from sightline.models.scan import POSSCANConfig, SCANConfig
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig


@dataclass(frozen=True)
class Block:
    """A box: `place` is (column, row); `owns` the beginnings of parameter names; an input owns nothing."""

    place: tuple[float, float]
    title: str
    note: str = ""
    owns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagram:
    """One model: where its page is, its config, blocks and arrows between them."""

    page: str
    title: str
    config: Any
    blocks: dict[str, Block]
    arrows: tuple[str, ...] = field(default=())  # "from to"


DIAGRAMS = {
    "neuraltalk2": Diagram(
        "contrastive",
        "NeuralTalk2",
        NeuralTalk2Config(),
        {
            "vector": Block((0, 0), "global vector"),
            "words": Block((0, 1), "words so far"),
            "image": Block((1, 0), "image embedding", "read first", ("image.",)),
            "embedding": Block((1, 1), "word embedding", "", ("embedding.",)),
            "lstm": Block((2, 0.5), "LSTM", "", ("lstm.",)),
            "output": Block((3, 0.5), "next word", "", ("output.",)),
        },
        ("vector image", "words embedding", "image lstm", "embedding lstm", "lstm output"),
    ),
    "adaptive-attention": Diagram(
        "contrastive",
        "AdaptiveAttention",
        AdaptiveAttentionConfig(),
        {
            "grid": Block((0, 0), "grid cells"),
            "vector": Block((0, 1), "global vector"),
            "words": Block((0, 2), "words so far"),
            "cells": Block((1, 0), "cell embedding", "", ("cells.",)),
            "image": Block((1, 1), "image embedding", "", ("image.",)),
            "embedding": Block((1, 2), "word embedding", "", ("embedding.",)),
            "lstm": Block((2, 1.5), "LSTM", "and s: Eq. 9–10", ("word_gates.", "image_gates.", "hidden_gates.")),
            "sentinel": Block((3, 1.5), "visual sentinel", "s_t and h_t", ("sentinel.", "hidden.")),
            "attention": Block(
                (3, 0.5), "adaptive attention", "Eq. 6–7, 11–12", ("cell_keys.", "sentinel_keys.", "queries.", "score.")
            ),
            "output": Block((4, 1), "next word", "Eq. 13", ("mix.", "output.")),
        },
        ("grid cells", "vector image", "words embedding", "image lstm", "embedding lstm", "lstm sentinel",
         "cells attention", "sentinel attention", "attention output", "sentinel output"),
    ),
    "updown": Diagram(
        "pos-scan",
        "Up-Down",
        UpDownConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "words": Block((0, 1), "words so far"),
            "embedded": Block((1, 0), "v′, then a ReLU", "Eq. 9", ("region_embedding.",)),
            "embedding": Block((1, 1), "word embedding", "", ("word_embedding.",)),
            "first": Block((2, 1), "attention LSTM", "Eq. 10", ("attention_lstm.",)),
            "attention": Block(
                (2, 0), "attention β", "Eq. 11–12", ("region_attention.", "hidden_attention.", "attention_score.")
            ),
            "second": Block((3, 0.5), "language LSTM", "Eq. 13", ("language_lstm.",)),
            "output": Block((4, 0.5), "next word", "Eq. 14", ("output.",)),
        },
        ("regions embedded", "words embedding", "embedding first", "embedded attention", "embedded first",
         "first attention", "attention second", "first second", "second output", "second first"),
    ),
    "scan": Diagram(
        "pos-scan",
        "SCAN",
        SCANConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "words": Block((0, 1), "words of a text"),
            "image": Block((1, 0), "v = W f + b", "Eq. 1", ("image.",)),
            "embedding": Block((1, 1), "word embedding", "Eq. 2", ("text.embedding.",)),
            "gru": Block((2, 1), "two-way GRU", "Eq. 2–3", ("text.gru.",)),
            "cosine": Block((3, 0.5), "word × region", "Eq. 4–5"),
            "score": Block((4, 0.5), "S(I, T)", "Eq. 6"),
        },
        ("regions image", "words embedding", "embedding gru", "image cosine", "gru cosine", "cosine score"),
    ),
    "pos-scan": Diagram(
        "pos-scan",
        "POS-SCAN",
        POSSCANConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "words": Block((0, 1), "words of a text"),
            "image": Block((1, 0), "v = W f + b", "Eq. 1", ("image.",)),
            "embedding": Block((1, 1), "word embedding", "Eq. 2", ("text.embedding.",)),
            "gru": Block((2, 1), "two-way GRU", "Eq. 2–3", ("text.gru.",)),
            "nouns": Block((3, 1), "nouns alone", "Eq. 8"),
            "cosine": Block((3, 0), "noun × region", "Eq. 4–5"),
            "score": Block((4, 0.5), "S_pos(I, T)", "Eq. 8"),
        },
        ("regions image", "words embedding", "embedding gru", "gru nouns", "nouns cosine", "image cosine",
         "cosine score"),
    ),
    "vsrn": Diagram(
        "vsrn",
        "VSRN",
        VSRNConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "words": Block((0, 2), "words of a text"),
            "fc": Block((1, 0), "v = W f + b", "Eq. 1", ("fc.",)),
            "rrr": Block((2, 0), "4 × region reasoning", "Eq. 2–3", ("relations.",)),
            "gsr": Block((3, 0), "global reasoning", "Eq. 4–7", ("reasoning.",)),
            "text": Block((1, 2), "sentence GRU", "", ("text.",)),
            "score": Block((4, 2), "S(I, C)", "Eq. 8"),
            "captioner": Block((3, 1), "captioner, for training", "Eq. 9", ("captioner.",)),
        },
        ("regions fc", "fc rrr", "rrr gsr", "gsr score", "words text", "text score", "rrr captioner"),
    ),
    "vsepp": Diagram(
        "vsrn",
        "VSE++",
        VSEPPConfig(),
        {
            "regions": Block((0, 0), "regions, averaged"),
            "words": Block((0, 1), "words of a text"),
            "fc": Block((1, 0), "linear", "", ("fc.",)),
            "text": Block((1, 1), "sentence GRU", "", ("text.",)),
            "score": Block((2, 0.5), "cosine"),
        },
        ("regions fc", "words text", "fc score", "text score"),
    ),
    "jran": Diagram(
        "jran",
        "JRAN",
        JRANConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "grid": Block((0, 1), "grid cells"),
            "words": Block((0, 2), "words so far"),
            "v_r": Block((1, 0), "V_r", "projected", ("region_projection.",)),
            "v_s": Block((1, 1), "V_s", "Eq. 2", ("grid_projection.",)),
            "embedding": Block((1, 2), "word embedding", "", ("embedding.",)),
            "jrln": Block((2, 0.5), "3 × relationships", "Eq. 3–10", ("jrln.",)),
            "attention": Block((3, 0.5), "relationship attention", "Eq. 11–13", ("decoder.attention.",)),
            "lstm": Block((3, 1.5), "LSTM", "", ("decoder.word.", "decoder.context.", "decoder.recurrent.")),
            "output": Block((4, 1), "next word", "", ("output.",)),
        },
        ("regions v_r", "grid v_s", "words embedding", "v_r jrln", "v_s jrln", "jrln attention", "attention lstm",
         "lstm attention", "embedding lstm", "lstm output"),
    ),
    "sim-trans": Diagram(
        "jran",
        "Sim-Trans",
        SimTransConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "words": Block((0, 1), "words so far"),
            "memory": Block((1, 0), "linear", "", ("regions.",)),
            "embedding": Block((1, 1), "word embedding", "and position", ("embedding.",)),
            "decoder": Block((2, 0.5), "6 × decoder layer", "", ("layers.",)),
            "output": Block((3, 0.5), "next word", "", ("output.",)),
        },
        ("regions memory", "words embedding", "memory decoder", "embedding decoder", "decoder output"),
    ),
    "jran-trans": Diagram(
        "jran",
        "JRAN-Trans",
        JRANTransConfig(),
        {
            "regions": Block((0, 0), "regions"),
            "grid": Block((0, 1), "grid cells"),
            "words": Block((0, 2), "words so far"),
            "v_r": Block((1, 0), "V_r", "projected", ("regions.",)),
            "v_s": Block((1, 1), "V_s", "Eq. 2", ("grid.",)),
            "embedding": Block((1, 2), "word embedding", "and position", ("embedding.",)),
            "jrln": Block((2, 0.5), "3 × relationships", "Eq. 3–10", ("jrln.",)),
            "decoder": Block((3, 1), "6 × decoder layer", "", ("layers.",)),
            "output": Block((4, 1), "next word", "", ("output.",)),
        },
        ("regions v_r", "grid v_s", "words embedding", "v_r jrln", "v_s jrln", "jrln decoder", "embedding decoder",
         "decoder output"),
    ),
    "r2m": Diagram(
        "r2m",
        "R²M",
        R2MConfig(),
        {
            "concepts": Block((0, 0), "concepts"),
            "words": Block((0, 1), "words so far"),
            "vector": Block((0, 2), "image vector"),
            "embedding": Block((1, 0.5), "embedding", "of both", ("embedding.",)),
            "encoder": Block((2, 0), "LSTM encoder", "v, section 2.1", ("encoder.",)),
            "fusion": Block((2, 1), "fusion memory", "f, Eq. 1–4", ("fusion.",)),
            "memory": Block((3, 0.5), "recurrent memory", "M^d, Eq. 5–7", ("decoder.",)),
            "output": Block((4, 0), "next word", "Eq. 8", ("output.",)),
            "reconstructor": Block((4, 1), "reconstructor", "ṽ, Eq. 9", ("reconstructor.",)),
            "image": Block((4, 2), "v̂, compared with ṽ", "Eq. 12", ("image.",)),
        },
        ("concepts embedding", "words embedding", "embedding encoder", "embedding fusion", "encoder fusion",
         "fusion memory", "memory output", "memory reconstructor", "vector image"),
    ),
}  # fmt: skip
