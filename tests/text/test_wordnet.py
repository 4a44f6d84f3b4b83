"""WordNet: known facts, and every record against the database files where they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sightline.errors import ConfigError, DataError
from sightline.text import wordnet
from sightline.text.wordnet import POS, Pos

NAMES: dict[Pos, str] = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
DOG = 102084071


@pytest.fixture(scope="module")
def database() -> Path:
    """The raw files: WNSEARCHDIR as WordNet's own tools read it, else Debian's place for them."""
    folder = Path(os.environ.get("WNSEARCHDIR", "/usr/share/wordnet"))
    if not (folder / "data.noun").exists():
        pytest.skip(f"no WordNet database in {folder} (apt install wordnet-base, or set WNSEARCHDIR)")
    return folder


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if not line.startswith(" ")]


def test_senses_come_most_frequent_first() -> None:
    assert wordnet.senses("dog", "n")[0] == DOG
    assert len(wordnet.senses("dog", "n")) == 7
    assert wordnet.senses("dog", "v") == (202001876,)
    assert wordnet.senses("dog", "a") == ()
    assert wordnet.senses("zzqx", "n") == ()


def test_synsets_of_all_parts_of_speech_are_those_of_each() -> None:
    for word in ("swing", "white", "back", "zzqx"):
        assert wordnet.synsets(word) == frozenset().union(*(wordnet.synsets(word, pos) for pos in POS))
    assert wordnet.synsets("dog", "n") == frozenset(wordnet.senses("dog", "n"))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("sofa", "couch", True),
        ("bike", "bicycle", True),
        ("Bike", "BICYCLE", True),
        ("man", "adult male", True),
        ("dog", "cat", False),
        ("dog", "dog", True),
        ("zzqx", "zzqx", False),
    ],
)
def test_synonyms_share_a_synset(a: str, b: str, expected: bool) -> None:
    assert wordnet.share_synset(a, b) is expected
    assert wordnet.share_synset(b, a, "n") is expected


def test_hypernyms_lead_to_the_top() -> None:
    animal, entity = wordnet.senses("animal", "n")[0], wordnet.senses("entity", "n")[0]
    assert wordnet.hypernyms(DOG) == (102083346, 101317541)  # canine; domestic animal
    assert {DOG, animal, entity} <= wordnet.ancestors(DOG)
    assert wordnet.hypernyms(entity) == ()
    assert wordnet.ancestors(entity) == {entity}
    assert animal in wordnet.hypernym_closure("poodle", "n")
    assert animal not in wordnet.hypernym_closure("table", "n")
    assert wordnet.hypernym_closure("zzqx", "n") == frozenset()
    assert wordnet.senses("city", "n")[0] in wordnet.hypernym_closure("Paris", "n")  # an instance


@pytest.mark.parametrize(
    ("word", "pos", "expected"),
    [
        ("surfer", "n", "noun.person"),
        ("dog", "n", "noun.animal"),
        ("pizza", "n", "noun.food"),
        ("skateboard", "n", "noun.artifact"),
        ("run", "v", "verb.motion"),
        ("happy", "a", "adj.all"),
        ("quickly", "r", "adv.all"),
    ],
)
def test_lexicographer_files(word: str, pos: Pos, expected: str) -> None:
    assert wordnet.lexfile(wordnet.senses(word, pos)[0]) == expected


def test_compounds_are_found_by_their_words() -> None:
    assert wordnet.has("teddy bear", "n")
    assert wordnet.has("look up", "v")
    assert not wordnet.has("look up", "n")
    assert not wordnet.has("fire dog", "n")
    assert wordnet.senses("fire_hydrant", "n") == wordnet.senses("fire hydrant", "n") != ()


def test_exceptions_are_irregular_forms() -> None:
    assert wordnet.exceptions("n")["men"] == ("man",)
    assert wordnet.exceptions("v")["rode"] == ("ride",)
    assert wordnet.exceptions("n")["axes"] == ("ax", "axis")
    assert wordnet.exceptions("n")["men of letters"] == ("man of letters",)


def test_a_wrong_part_of_speech_or_id_is_refused() -> None:
    with pytest.raises(ConfigError, match="'noun' is not a part of speech"):
        wordnet.senses("dog", "noun")  # type: ignore[arg-type]
    for id in (0, DOG + 1, 999_999_999):
        with pytest.raises(DataError, match=f"{id} is not the id of a synset"):
            wordnet.hypernyms(id)


def test_the_asset_is_small_and_carries_its_licence() -> None:
    assert wordnet.ASSET.stat().st_size <= 3_000_000
    text = (wordnet.ASSET.parent / "WORDNET-LICENSE").read_text("utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in text


def test_it_is_loaded_on_first_use_only() -> None:
    code = (
        "import sys, sightline; assert 'sightline.text.wordnet' not in sys.modules\n"
        "from sightline.text import wordnet; assert wordnet._lexicon.cache_info().currsize == 0\n"
        "wordnet.senses('dog', 'n'); assert wordnet._lexicon.cache_info().currsize == 1\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("pos", POS)
def test_senses_equal_the_index_file(database: Path, pos: Pos) -> None:
    prefix = (POS.index(pos) + 1) * 100_000_000
    seen = []
    for line in lines(database / f"index.{NAMES[pos]}"):
        fields = line.split()
        offsets = fields[-int(fields[2]) :]
        assert wordnet.senses(fields[0], pos) == tuple(prefix + int(offset) for offset in offsets), fields[0]
        seen.append(fields[0].replace("_", " "))
    assert list(wordnet.lemmas(pos)) == sorted(seen)


@pytest.mark.parametrize("pos", POS)
def test_synsets_equal_the_data_file(database: Path, pos: Pos) -> None:
    prefix = (POS.index(pos) + 1) * 100_000_000
    for line in lines(database / f"data.{NAMES[pos]}")[::7]:
        fields = line.split(" | ")[0].split()
        pointers = fields[4 + 2 * int(fields[3], 16) + 1 :]
        parents = [
            prefix + int(pointers[i + 1])
            for i in range(0, len(pointers) - 1, 4)
            if pointers[i] in ("@", "@i") and i + 3 < len(pointers)
        ]
        synset = prefix + int(fields[0])
        assert list(wordnet.hypernyms(synset)) == parents
        assert wordnet.LEXFILES.index(wordnet.lexfile(synset)) == int(fields[1])


@pytest.mark.parametrize("pos", POS)
def test_exceptions_equal_the_exception_file(database: Path, pos: Pos) -> None:
    rows = [[word.replace("_", " ") for word in line.split()] for line in lines(database / f"{NAMES[pos]}.exc") if line]
    assert wordnet.exceptions(pos) == {form: tuple(bases) for form, *bases in rows}


def test_frequencies_are_sums_over_senses(database: Path) -> None:
    keys = [line.split() for line in lines(database / "cntlist.rev")]
    for word, pos, types in (("dog", "n", "1"), ("run", "v", "2"), ("white", "a", "35"), ("back", "r", "4")):
        counts = [int(n) for key, _, n in keys if key.split("%")[0] == word and key.split("%")[1][0] in types]
        assert wordnet.frequency(word, pos) == sum(counts) > 0  # type: ignore[arg-type]
    assert wordnet.frequency("zzqx", "n") == 0
