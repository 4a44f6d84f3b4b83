"""`sightline score` and the scorecard, from the outside."""

import json
import os
import pickle
import pty
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from sightline.cli import commands
from sightline.data.formats import inspect
from sightline.errors import ConfigError, DataError, MissingRecordError
from sightline.metrics import spice
from sightline.metrics.cider import DocumentFrequencies
from sightline.metrics.report import report_data, write_report
from sightline.metrics.scorecard import METRICS, ON_REQUEST, default_metrics, scorecard

REFERENCES = {
    "1": ["A dog runs across the grass.", "A brown dog is running."],
    "2": ["A man wears a red hat.", "A man in a hat."],
    "3": ["Two cats sleep on a bed.", "Cats are sleeping."],
}
HYPOTHESES = {"1": "a brown dog runs on grass", "2": "a man with a hat", "3": "two cats on a bed"}
LANGUAGE = ["bleu", "rouge", "cider", "spice"]


@pytest.fixture
def refs(tmp_path):
    images = [{"id": int(id), "file_name": f"{id}.jpg"} for id in REFERENCES]
    annotations = [
        {"id": 10 * int(id) + k, "image_id": int(id), "caption": text}
        for id, texts in REFERENCES.items()
        for k, text in enumerate(texts)
    ]
    path = tmp_path / "captions_refs.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations}))
    return path


def results(tmp_path, captions, name="hyps.json"):
    path = tmp_path / name
    path.write_text(json.dumps([{"image_id": int(id), "caption": text} for id, text in captions.items()]))
    return path


def run(*arguments, metrics=("bleu", "rouge", "cider", "spice")):
    return commands.main(["score", *map(str, arguments), "--metrics", *metrics])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json"])
def test_what_caption_wrote_is_scored_without_its_photos(kind, tmp_path, command, monkeypatch):
    folder = tmp_path / "holiday"
    folder.mkdir()
    for name, colour in (("cat.jpg", "red"), ("000000030034.jpg", "blue")):
        Image.new("RGB", (64, 48), colour).save(folder / name)
    monkeypatch.chdir(tmp_path)
    assert command("caption")("holiday", "--out", "made", "--format", kind, "--quiet")[0] == 0
    shutil.rmtree(folder)
    refs, out = tmp_path / "refs.json", tmp_path / "scores.json"
    refs.write_text(json.dumps({"cat.jpg": ["a cat on a bed"], "30034": ["the blue sky", "a clear sky"]}))
    assert run("--refs", refs, "--hyps", f"made/captions.{kind}", "--out", out, metrics=["rouge"]) == 0
    assert set(json.loads(out.read_text())["per_image"]) == {"cat.jpg", "30034"}
    (report,) = inspect(tmp_path / f"made/captions.{kind}")
    assert (report.counts["captions"], report.problems) == (2, ())


@pytest.mark.parametrize("flag", ["--out", "--html"])
def test_files_that_are_read_are_never_replaced(flag, refs, tmp_path, capsys):
    hyps = results(tmp_path, HYPOTHESES)
    (tmp_path / "link.json").symlink_to(refs)
    before = refs.read_bytes(), hyps.read_bytes()
    for target in (refs, hyps, tmp_path / "link.json"):
        assert run("--refs", refs, "--hyps", hyps, flag, target, metrics=["rouge"]) == 2
        assert "this file is read, and would be replaced" in capsys.readouterr().err
    assert (refs.read_bytes(), hyps.read_bytes()) == before


def test_two_captions_of_one_photo_are_told(tmp_path, capsys):
    refs, hyps = tmp_path / "refs.json", tmp_path / "said.csv"
    refs.write_text('{"cat.jpg": ["a cat on a bed"]}')
    hyps.write_text("file,caption\na/cat.jpg,a cat\nb/cat.jpg,a cat\n")
    assert run("--refs", refs, "--hyps", hyps, metrics=["rouge"]) != 0
    assert "two captions are of image cat.jpg" in capsys.readouterr().err


def test_boxes_and_references_may_name_photos_differently(tmp_path, capsys):
    refs, hyps, boxes = tmp_path / "refs.json", tmp_path / "said.csv", tmp_path / "boxes.jsonl"
    refs.write_text('{"COCO_val2014_000000000009": ["a dog on a bed"]}')
    hyps.write_text("path,caption\nphotos/000000000009.jpg,a cat on a bed\n")
    boxes.write_text('["9", [[15, 0.9, 0, 0, 500, 500]]]\n')
    arguments = ["score", "--refs", refs, "--hyps", hyps, "--metrics", "chair", "--instances", boxes, "--json"]
    assert commands.main(list(map(str, arguments))) == 0
    assert json.loads(capsys.readouterr().out)["corpus"]["CHAIRs"] == 0


def test_json_has_corpus_per_image_and_signature(tmp_path, refs, capsys):
    out = tmp_path / "scores.json"
    assert run("--refs", refs, "--hyps", results(tmp_path, HYPOTHESES), "--out", out) == 0
    scores = json.loads(out.read_text())
    keys = {"Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "ROUGE_L", "CIDEr", "SPICE"}
    assert set(scores["corpus"]) == keys
    assert set(scores["per_image"]) == {"1", "2", "3"}
    assert set(scores["per_image"]["1"]) == keys
    for part in ("metrics:bleu+rouge+cider+spice", "images:3", "refs:2", "tok:ptb", "df:corpus", "sightline:"):
        assert part in scores["signature"]
    shown = capsys.readouterr().out
    assert "SPICE (Sightline parser)" in shown
    assert f"{scores['corpus']['CIDEr']:.4f}" in shown
    assert scores["signature"] in shown


def test_json_is_one_document_on_standard_output_and_nothing_else(tmp_path, refs, capsys):
    out, hyps = tmp_path / "scores.json", results(tmp_path, HYPOTHESES)
    assert run("--refs", refs, "--hyps", hyps, "--out", out, "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())
    assert run("--refs", refs, "--hyps", hyps, results(tmp_path, HYPOTHESES, "more.json"), "--json") == 0
    shown = capsys.readouterr()
    assert set(json.loads(shown.out)["systems"]) == {"hyps", "more"}
    assert shown.err == ""


def test_a_bar_is_shown_on_a_terminal_while_metrics_work(tmp_path, refs):
    command = [sys.executable, "-m", "sightline", "score", "--refs", str(refs)]
    command += ["--hyps", str(results(tmp_path, HYPOTHESES)), "--metrics", "bleu", "spice"]

    def on_terminal(*more: str) -> str:
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        subprocess.run([*command, *more], stderr=slave, stdout=subprocess.DEVNULL, check=True, env=environment)
        os.write(slave, b".")  # so that there is something to read
        os.close(slave)
        shown = os.read(master, 1 << 16).decode()
        os.close(master)
        return shown

    shown = on_terminal()
    assert "scoring hyps: spice" in shown
    assert "100%" in shown
    assert on_terminal("--quiet") == "."


def test_slow_metrics_tell_how_far_they_are(monkeypatch):
    monkeypatch.setattr(spice, "IMAGES_AT_ONCE", 2)
    told = []
    scorecard(HYPOTHESES, REFERENCES, ["spice"], tell=lambda *words: told.append(words))
    assert told[:3] == [("spice", 0), ("spice", 2), ("spice", 3)]


def test_every_layout_of_references_and_captions_gives_the_same_scores(tmp_path, refs):
    by_id, said_by_id, karpathy = tmp_path / "refs.json", tmp_path / "said.json", tmp_path / "dataset_x.json"
    by_id.write_text(json.dumps(REFERENCES))
    said_by_id.write_text(json.dumps(HYPOTHESES))
    images = [
        {
            "filename": f"{id}.jpg",
            "imgid": int(id),
            "split": "test",
            "sentids": [10 * int(id) + k for k in range(len(texts))],
            "sentences": [
                {"raw": t, "tokens": t.split(), "imgid": int(id), "sentid": 10 * int(id) + k}
                for k, t in enumerate(texts)
            ],
        }
        for id, texts in REFERENCES.items()
    ]
    other = {**images[0], "imgid": 99, "filename": "99.jpg", "split": "train"}
    karpathy.write_text(json.dumps({"images": [*images, other], "dataset": "x"}))
    hyps = results(tmp_path, HYPOTHESES)
    found = []
    for refs_file, hyps_file, extra in (
        (refs, hyps, []),
        (by_id, said_by_id, []),
        (karpathy, hyps, ["--split", "test"]),
    ):
        out = tmp_path / "out.json"
        assert run("--refs", refs_file, "--hyps", hyps_file, "--out", out, "--quiet", *extra) == 0
        found.append(json.loads(out.read_text()))
    assert found[0]["corpus"] == found[1]["corpus"] == found[2]["corpus"]
    assert found[0]["per_image"] == found[1]["per_image"] == found[2]["per_image"]


def test_the_order_of_the_captions_does_not_matter():
    backwards = dict(reversed(HYPOTHESES.items()))
    one, other = scorecard(HYPOTHESES, REFERENCES, LANGUAGE), scorecard(backwards, REFERENCES, LANGUAGE)
    assert one.scores == other.scores


def test_single_words_and_one_letter_ids_are_read_as_captions_by_id(tmp_path, capsys):
    (tmp_path / "r.json").write_text('{"a": ["dog"], "b": ["cat"]}')
    (tmp_path / "h.json").write_text('{"a": "dog", "b": "dog"}')
    assert run("--refs", tmp_path / "r.json", "--hyps", tmp_path / "h.json", metrics=["rouge"]) == 0
    assert "0.5000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hypotheses", "words"),
    [
        ('{"1": "a dog", "9": "a cat"}', "1 of 2 captioned images have no reference: 9"),
        ('[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "b"}]', "image 1 appears twice"),
        ('{"1": ["a dog", "two dogs"]}', "has 2 captions, and one is scored per image"),
        ("{}", "there is no caption to score"),
        ('[{"image_id": 1, "capt', "ends too early"),
        ("\x00\x01", "not valid JSON"),
    ],
)
def test_a_bad_file_of_captions_gets_one_sentence(tmp_path, refs, hypotheses, words, capsys):
    (tmp_path / "h.json").write_text(hypotheses)
    assert run("--refs", refs, "--hyps", tmp_path / "h.json", metrics=["bleu"]) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_metric_and_a_file_without_captions_are_refused(tmp_path, refs, capsys):
    hyps = results(tmp_path, HYPOTHESES)
    assert run("--refs", refs, "--hyps", hyps, metrics=["blue"]) == 2
    assert "there is no metric 'blue'" in capsys.readouterr().err
    (tmp_path / "list.txt").write_text("1.jpg\n2.jpg\n")
    assert run("--refs", tmp_path / "list.txt", "--hyps", hyps, metrics=["bleu"]) == 2
    assert "holds no captions" in capsys.readouterr().err
    assert run("--refs", tmp_path / "nothing.json", "--hyps", hyps, metrics=["bleu"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_notes_tell_missing_captions_empty_ones_emojis_and_lonely_images():
    card = scorecard({"1": "🐶 a dog", "2": "..."}, REFERENCES, ["cider"])
    notes = " ".join(card.notes)
    assert "1 of 3 images with references have no caption and were not scored: 3" in notes
    assert "1 captions are empty after tokenisation" in notes
    assert "1 captions hold emojis" in notes
    alone = scorecard({"1": "a dog runs"}, REFERENCES, ["cider"])
    assert alone.scores.corpus == {"CIDEr": 0.0}
    assert any("log 1 = 0" in note for note in alone.notes)
    saved = DocumentFrequencies({("dog",): 3.0}, 100)
    assert scorecard({"1": "a dog runs"}, REFERENCES, ["cider"], saved).scores.corpus["CIDEr"] > 0
    assert "df:saved-100-images" in scorecard({"1": "a dog"}, REFERENCES, ["cider"], saved).signature


def test_mistakes_in_python_are_refused_too():
    with pytest.raises(ConfigError, match="no metric"):
        scorecard(HYPOTHESES, REFERENCES, ["bertscore"])
    with pytest.raises(MissingRecordError):
        scorecard({"x": "a dog"}, REFERENCES)
    with pytest.raises(DataError, match="no caption"):
        scorecard({}, REFERENCES)


def test_by_default_every_installed_metric_runs_and_each_is_told():
    told = []
    card = scorecard(HYPOTHESES, REFERENCES, tell=lambda *words: told.append(words))
    assert tuple(dict.fromkeys(metric for metric, _ in told)) == default_metrics() == tuple(card.metrics)
    assert not set(default_metrics()) & set(ON_REQUEST)
    for name in default_metrics():
        counts = [images for metric, images in told if metric == name]
        assert counts[0] == 0
        assert counts[-1] == 3
        assert counts == sorted(counts)
    assert set(default_metrics()) >= set(METRICS) - {"meteor", *ON_REQUEST}


def test_saved_document_frequencies_are_read(tmp_path, refs, capsys):
    frequencies = {"document_frequency": {("dog",): 2.0, ("a", "dog"): 1.0}, "ref_len": 50.0}
    (tmp_path / "coco-train-words.p").write_bytes(pickle.dumps(frequencies))
    hyps = results(tmp_path, HYPOTHESES)
    assert run("--refs", refs, "--hyps", hyps, "--df", tmp_path / "coco-train-words.p", metrics=["cider"]) == 0
    assert "df:saved-50-images" in capsys.readouterr().out


def test_frequencies_of_word_ids_are_refused(tmp_path, refs, capsys):
    frequencies = {"document_frequency": {("12",): 2.0, ("12", "0"): 1.0}, "ref_len": 50.0}
    (tmp_path / "coco-train-idxs.p").write_bytes(pickle.dumps(frequencies))
    hyps = results(tmp_path, HYPOTHESES)
    assert run("--refs", refs, "--hyps", hyps, "--df", tmp_path / "coco-train-idxs.p", metrics=["cider"]) != 0
    assert "coco-train-words.p" in capsys.readouterr().err


def test_several_systems_are_compared_on_one_page(tmp_path, refs, capsys):
    good = results(tmp_path, {id: texts[0] for id, texts in REFERENCES.items()}, "good.json")
    poor = results(tmp_path, dict.fromkeys(REFERENCES, "a photo </script> of something"), "poor.json")
    page, out = tmp_path / "page.html", tmp_path / "scores.json"
    assert run("--refs", refs, "--hyps", poor, good, "--html", page, "--out", out) == 0
    shown = capsys.readouterr().out
    assert "poor" in shown
    assert "good" in shown
    assert set(json.loads(out.read_text())["systems"]) == {"poor", "good"}
    text = page.read_text()
    assert "http" not in re.sub(r"<script type=.*?</script>", "", text, flags=re.DOTALL)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1].replace("<\\/", "</"))
    (pair,) = data["comparisons"]
    assert (pair["base"], pair["other"]) == ("poor", "good")
    assert pair["scores"]["CIDEr"]["score"] > 0
    assert pair["scores"]["CIDEr"]["wins"] == 1.0
    assert data["keys"][-1] == "SPICE"
    assert data["titles"]["SPICE"] == "SPICE (Sightline parser)"


def test_the_page_tells_why_an_image_scored_as_it_did(tmp_path):
    data = report_data({"ours": scorecard(HYPOTHESES, REFERENCES, LANGUAGE)}, rounds=20)
    (first, *_), keys = data["images"], data["keys"]
    said = first["systems"][0]
    assert said["text"] == "a brown dog runs on grass"
    assert said["why"]["bleu"]["hits"] == [0, 1, 2, 3, 5]
    assert said["why"]["bleu"]["longest"] == ["a brown dog", "dog runs"]
    assert said["why"]["rouge"] == [0, 2, 3, 5]
    assert said["why"]["cider"][0][1] > 0
    assert "dog" in said["why"]["spice"]["matched"]
    assert len(said["scores"]) == len(keys)
    write_report(tmp_path / "page.html", {"ours": scorecard(HYPOTHESES, REFERENCES, ["bleu"])}, rounds=5)
    assert (tmp_path / "page.html").stat().st_size > 5000


@pytest.mark.skipif("meteor" not in default_metrics(), reason="the data of the extra `meteor` is not installed")
def test_meteor_is_on_the_scorecard_and_its_alignment_on_the_page():
    card = scorecard(HYPOTHESES, REFERENCES, ["meteor"])
    assert 0 < card.scores.corpus["METEOR"] < 1
    assert "meteor:1.5-en-norm" in card.signature
    why = report_data({"ours": card}, rounds=5)["images"][0]["systems"][0]["why"]["meteor"]
    assert ("dog", "dog", "exact") in why["pairs"]


@pytest.mark.skipif("meteor" not in default_metrics(), reason="the data of the extra `meteor` is not installed")
def test_meteor_resamples_as_if_the_images_drawn_had_been_scored():
    metric = scorecard(HYPOTHESES, REFERENCES, ["meteor"]).metrics["meteor"]
    drawn = metric.resample(np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0]]))["METEOR"]
    assert drawn[0] == pytest.approx(metric.compute().corpus["METEOR"], rel=1e-12)
    twice = {"1": HYPOTHESES["1"], "1 again": HYPOTHESES["1"], "3": HYPOTHESES["3"]}
    heard = {"1": REFERENCES["1"], "1 again": REFERENCES["1"], "3": REFERENCES["3"]}
    assert drawn[1] == pytest.approx(scorecard(twice, heard, ["meteor"]).scores.corpus["METEOR"], rel=1e-12)


@pytest.mark.data
def test_the_reference_corpora_are_equal_to_the_last_digits(data_dir, tmp_path):
    recorded = json.loads((data_dir / "metrics" / "reference.json").read_text())["sets"]["fakecap1000_official"]
    out = tmp_path / "scores.json"
    refs = data_dir / "coco" / "captions_val2014.json.gz"
    hyps = data_dir / "metrics" / "captions_val2014_fakecap_results.json"
    assert run("--refs", refs, "--hyps", hyps, "--out", out, "--quiet", metrics=default_metrics()) == 0
    scores = json.loads(out.read_text())
    names = {
        "Bleu_1": 1e-9,
        "Bleu_2": 1e-9,
        "Bleu_3": 1e-9,
        "Bleu_4": 1e-9,
        "ROUGE_L": 1e-9,
        "CIDEr": 1e-9,
        "METEOR": 1e-6,
    }
    for key, within in names.items():
        if key in scores["corpus"]:
            theirs = recorded["corpus"]["CIDEr_D" if key == "CIDEr" else key]
            assert scores["corpus"][key] == pytest.approx(theirs, abs=within), key
            for image in recorded["per_image"]:
                value = image["CIDEr_D" if key == "CIDEr" else key]
                assert scores["per_image"][image["image_id"]][key] == pytest.approx(value, abs=within), (key, image)
    assert abs(scores["corpus"]["SPICE"] - 0.133) < 0.02


def test_a_file_name_with_a_line_break_stays_one_line(tmp_path, capsys):
    (tmp_path / "refs.json").write_text(json.dumps({"a\nb.jpg": ["a cat"], "c.jpg": ["a dog"]}))
    (tmp_path / "said.json").write_text(json.dumps({"c.jpg": "a dog"}))
    asked = ["score", "--refs", str(tmp_path / "refs.json"), "--hyps", str(tmp_path / "said.json"), "--metrics", "bleu"]
    assert commands.main(asked) == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if "were not scored" in line]
    assert note.endswith("a\\nb.jpg")


def test_a_table_shows_names_of_files_as_they_are(tmp_path, refs, capsys):
    names = ["mine[beta]", "a:cat:", "red\x1b[31m"]
    paths = [results(tmp_path, HYPOTHESES, f"{name}.json") for name in names]
    assert run("--refs", refs, "--hyps", *paths, metrics=["bleu"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["mine[beta]", "a:cat:", "red\\x1b[31m"]
