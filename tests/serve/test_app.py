"""The HTTP API, asked over a socket: answers, refusals, and limits."""

import base64
import concurrent.futures
import io
import json
import socket
import tempfile
import threading
import time
from pathlib import Path

import httpx
import pytest
import torch
from PIL import Image

from bundle_samples import WORDS, draw_photo, tiny_bundle
from serve_samples import PHOTOS, index_of, served, tiny_pipeline
from sightline.decoding.rules import rules_of
from sightline.errors import ConfigError
from sightline.pipeline import Pipeline
from sightline.serve import service
from sightline.serve.limits import Limits
from sightline.serve.middleware import Access
from sightline.serve.schemas import Audits, Captions, Ground, Health, Hits

torch.set_num_threads(1)
CAT = next(photo for photo in PHOTOS if photo.name == "cat.jpg")
TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


@pytest.fixture(scope="module")
def server(pipeline, tmp_path_factory):
    with served(pipeline, index=index_of(pipeline, tmp_path_factory.mktemp("index"))) as running:
        yield running


@pytest.fixture(scope="module")
def ask(server):
    return server.client


def form(*photos, name="photos"):
    return [(name, (photo.name, photo.read_bytes())) for photo in photos]


def coded(path):
    return {"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()}


def refused(answer, status):
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error", "fix"}
    assert told["error"]
    assert told["fix"]
    return told["error"]


def alike(told, said):
    """A caption of the server is that of the direct call, but for the last digits of a batch of another size."""
    direct = said.to_json()
    assert told["caption"] == direct["caption"]
    assert told["size"] == direct["size"]
    assert told["log_prob"] == pytest.approx(direct["log_prob"], abs=1e-3)
    for word, own in zip(told["words"], direct["words"], strict=True):
        assert word["box"] == pytest.approx(own["box"], abs=0.2)


def test_captions_of_a_form_are_those_of_the_direct_call(ask, pipeline):
    answer = ask.post("/v1/caption", files=form(*PHOTOS))
    assert answer.status_code == 200
    Captions.model_validate(answer.json())
    for path, told in zip(PHOTOS, answer.json()["captions"], strict=True):
        assert told["path"] == path.name
        alike(told, pipeline.caption(path))


def test_captions_of_json_too_and_a_data_url_is_base64_enough(ask, pipeline):
    photo = coded(CAT)
    url = {"data": f"data:image/jpeg;base64,{photo['data']}"}
    answer = ask.post("/v1/caption", json={"photos": [photo, url], "beam": 1})
    one, other = answer.json()["captions"]
    alike(one, pipeline.caption(CAT, beam=1))
    assert one["path"] == "cat.jpg"
    assert other["path"] == ""
    assert other["words"] == one["words"]


@pytest.mark.parametrize("length", ["short", "long", "5", 5])
def test_captions_are_as_long_as_asked_and_have_the_words_asked_for(ask, pipeline, length):
    wanted = {"photos": [coded(CAT)], "length": length, "must_include": ["red dog", "cup,two"]}
    answer = ask.post("/v1/caption", json=wanted)
    alike(answer.json()["captions"][0], pipeline.caption(CAT, rules=rules_of(str(length), ("red dog", "cup", "two"))))
    asked = {"length": str(length), "must_include": ["red dog", "cup,two"]}
    assert ask.post("/v1/caption", files=form(CAT), data=asked).json() == answer.json()
    one = ask.post("/v1/caption", files=form(CAT), data={"must_include": "red dog"}).json()["captions"][0]
    alike(one, pipeline.caption(CAT, rules=rules_of("normal", ("red dog",))))


@pytest.mark.parametrize(
    ("wanted", "status", "words"),
    [
        ({"length": "endless"}, 422, "length: 'endless' is no length; give short, normal, long, or 5 to 40 words"),
        ({"length": 41}, 422, "'41' is no length"),
        ({"length": 2.5}, 422, "'2.5' is no length"),
        ({"length": True}, 422, "length: "),
        ({"must_include": "dog"}, 422, "must_include: "),
        ({"must_include": [" , "]}, 422, "must_include.0: "),
        ({"must_include": ["dog"] * 11}, 422, "must_include: "),
        ({"must_include": ["a xyzzy"]}, 409, "the model does not know the word 'xyzzy' of `must_include`"),
        ({"must_include": ["dog"], "beam": 1}, 409, "`must_include` can only be kept with a beam"),
        ({"must_include": ["red dog", "two cup", "man park"], "length": 5}, 409, "captions have at most 5"),
    ],
)
def test_captions_that_nobody_can_make_are_refused_with_the_reason(ask, wanted, status, words):
    answer = ask.post("/v1/caption", json={"photos": [coded(CAT)], **wanted})
    assert words in refused(answer, status)


def test_requests_with_other_wishes_are_not_answered_together(pipeline):
    release = threading.Event()
    wishes = [{}, {"length": "5"}, {"length": "long"}, {"must_include": "dog"}, {"must_include": "cup"}]
    with served(pipeline) as running:
        running.service.worker.submit("held", lambda items: [release.wait(20) for _ in items], [None])
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            asked = [pool.submit(running.client.post, "/v1/caption", files=form(CAT), data=d) for d in wishes * 2]
            until = time.monotonic() + 15
            while running.queue_length < len(asked) and time.monotonic() < until:
                time.sleep(0.01)
            release.set()
            for wish, answer in zip(wishes * 2, asked, strict=True):
                rules = rules_of(wish.get("length", "normal"), tuple(wish.get("must_include", "").split()))
                alike(answer.result().json()["captions"][0], pipeline.caption(CAT, rules=rules))
    assert sorted(running.batch_sizes) == [1, *[2] * len(wishes)]  # what held it, and two of each wish


def test_other_wordings_are_the_next_of_the_beam_and_none_is_the_caption(ask, pipeline):
    told = ask.post("/v1/caption", files=form(CAT, PHOTOS[0]), data={"alternatives": "4"}).json()["captions"]
    for path, one in zip((CAT, PHOTOS[0]), told, strict=True):
        direct = [other.text for other in pipeline.alternatives(path, 5) if other.text != one["caption"]]
        assert one["alternatives"] == direct[:4]
        assert len(set(one["alternatives"])) >= 3
    assert "alternatives" not in ask.post("/v1/caption", files=form(CAT)).json()["captions"][0]


def test_a_second_model_can_be_asked_by_name(pipeline):
    other = Pipeline(tiny_bundle(seed=8))
    with served(pipeline, compare=other) as running:
        assert running.client.get("/v1/health").json()["models"] == ["tiny", "tiny (2)"]
        for name, model in (("", pipeline), ("tiny", pipeline), ("tiny (2)", other)):
            answer = running.client.post("/v1/caption", files=form(CAT), data={"model": name})
            alike(answer.json()["captions"][0], model.caption(CAT))
        wrong = running.client.post("/v1/caption", files=form(CAT), data={"model": "mine"})
        assert "there is no model 'mine' here" in refused(wrong, 409)


def test_a_photo_of_one_colour_has_no_attention(ask, tmp_path):
    Image.new("RGB", (60, 40), "grey").save(grey := tmp_path / "grey.png")
    answer = ask.post("/v1/caption", files=form(grey), data={"attention": "true"})
    (caption,) = answer.json()["captions"]
    assert caption["low_confidence"]
    assert [word["attention"] for word in caption["words"]] == [None] * len(caption["words"])


def test_attention_is_given_where_asked_for(ask):
    with_it = ask.post("/v1/caption", files=form(CAT), data={"attention": "true"}).json()["captions"][0]
    without = ask.post("/v1/caption", files=form(CAT)).json()["captions"][0]
    for word in with_it["words"]:
        assert max(max(row) for row in word["attention"]) == 1.0
        assert len({len(row) for row in word["attention"]} | {len(word["attention"])}) == 1
    assert all("attention" not in word for word in without["words"])


def test_a_bad_photo_among_good_ones_is_told_in_its_place(ask, tmp_path):
    (tmp_path / "bad name\n.jpg").write_bytes(b"no picture")
    answer = ask.post("/v1/caption", files=form(CAT, tmp_path / "bad name\n.jpg", CAT))
    assert answer.status_code == 200
    Captions.model_validate(answer.json())
    first, bad, last = answer.json()["captions"]
    assert "caption" in first
    assert "caption" in last
    assert bad["error"]
    assert bad["fix"]


def test_a_photo_turned_by_its_camera_is_upright(ask, tmp_path):
    image = Image.open(draw_photo(tmp_path / "turned.png", (160, 120)))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif)
    told = ask.post("/v1/caption", files=form(tmp_path / "turned.jpg")).json()["captions"][0]
    assert told["size"] == [120, 160]


def test_a_sentence_is_found_in_a_photo(ask, pipeline):
    answer = ask.post("/v1/ground", files=form(CAT, name="photo"), data={"sentence": "A dog, with the ball."})
    Ground.model_validate(answer.json())
    told, direct = answer.json(), pipeline.ground(CAT, "A dog, with the ball.").to_json()
    assert [word["word"] for word in told["words"]] == [word["word"] for word in direct["words"]]
    assert told["size"] == direct["size"]
    assert told["words"][1]["box"] == pytest.approx(direct["words"][1]["box"], abs=0.2)
    assert ask.post("/v1/ground", json={"photo": coded(CAT), "sentence": "a dog"}).json()["words"][1]["box"]


def test_search_finds_by_words_and_by_photo_and_shows_what_it_found(server, ask, pipeline):
    answer = ask.post("/v1/search", json={"text": "a dog on the table", "k": 3})
    Hits.model_validate(answer.json())
    direct = server.service.index.search(pipeline, "a dog on the table", count=3)
    assert [hit["path"] for hit in answer.json()["hits"]] == [Path(hit.path).name for hit in direct]
    assert answer.json()["unknown"] == []
    strange = ask.post("/v1/search", json={"text": "a xyzzy", "without": "plugh"}).json()
    assert (strange["unknown"], strange["hits"]) == (["xyzzy", "plugh"], [])
    by_photo = ask.post("/v1/search", files=form(CAT, name="photo"), data={"k": "2"}).json()
    assert by_photo["hits"][0]["path"].endswith("cat.jpg")
    assert by_photo["hits"][0]["score"] == pytest.approx(1, abs=1e-3)
    assert by_photo["sentence"] == pipeline.caption(CAT).text
    shown = ask.get(f"/v1/photos/{by_photo['hits'][0]['id']}", params={"side": 100})
    assert shown.headers["content-type"] == "image/jpeg"
    assert max(Image.open(io.BytesIO(shown.content)).size) == 100


def test_search_explains_and_a_hit_can_be_explained_later(ask):
    told = ask.post("/v1/search", json={"text": "a dog", "k": 2, "explain": True}).json()
    Hits.model_validate(told)
    for hit in told["hits"]:
        assert [word["word"] for word in hit["why"]["words"]] == ["a", "dog"]
        later = ask.post(f"/v1/photos/{hit['id']}/ground", json={"sentence": "a dog"}).json()
        assert later["words"][1]["box"] == pytest.approx(hit["why"]["words"][1]["box"], abs=0.2)


def test_many_hits_are_explained_in_one_request_and_one_round(server, ask):
    hits = ask.post("/v1/search", json={"text": "a dog", "k": 5, "explain": True}).json()["hits"]
    rounds = len(server.batch_sizes)
    ids = [hit["id"] for hit in hits]
    told = ask.post("/v1/explain", json={"ids": [*ids, 32 * "0"], "sentence": "a dog"}).json()["hits"]
    assert len(server.batch_sizes) == rounds + 1
    for hit, why in zip(hits, told[:-1], strict=True):
        assert why["size"] == hit["why"]["size"]
        assert why["words"][1]["box"] == pytest.approx(hit["why"]["words"][1]["box"], abs=0.2)
    assert told[-1] is None  # no hit has this id


def test_photos_like_a_hit_are_found_without_the_hit_itself(ask, pipeline, server):
    first = ask.post("/v1/search", files=form(CAT, name="photo"), data={"k": "1"}).json()["hits"][0]
    like = ask.post("/v1/search", json={"like": first["id"], "k": 4}).json()
    direct = server.service.index.search(pipeline, photo=CAT, count=5)[1:]
    assert [hit["path"] for hit in like["hits"]] == [Path(hit.path).name for hit in direct]
    assert like["sentence"] == pipeline.caption(CAT).text
    refused(ask.post("/v1/search", json={"like": 32 * "0"}), 404)


def test_weaker_matches_are_told(ask, pipeline, server):
    asked = "two cats"
    hits = ask.post("/v1/search", json={"text": asked, "k": 5}).json()["hits"]
    assert [hit["weak"] for hit in hits] == [hit.weak for hit in server.service.index.search(pipeline, asked, count=5)]
    assert len({hit["weak"] for hit in hits}) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": "123"}, "text: give at least one word"),
        ({"text": "dog " * 300}, "text: give at most 1000 letters"),
        ({"text": "a dog", "k": 0}, "k: give 1 or more"),
        ({"text": "a dog", "k": 201}, "k: give 200 or less"),
        ({"text": "a dog", "k": "few"}, "k: give a whole number"),
        ({"text": "a dog", "explain": "perhaps"}, "explain: give true or false"),
        ({"text": ["a dog"]}, "text: give text"),
        ({"text": "a dog", "colour": "red"}, "colour: there is no such field"),
        ({}, "give `text`, `photo` or `like`"),
    ],
)
def test_what_is_wrong_with_a_field_is_told_in_words_for_people(ask, body, words):
    assert refused(ask.post("/v1/search", json=body), 422) == words


def test_only_photos_that_were_found_can_be_asked_for(ask):
    refused(ask.get("/v1/photos/" + 32 * "0"), 404)
    for name in ("../../etc/passwd", "%2e%2e%2fetc%2fpasswd", str(CAT)):
        assert ask.get(f"/v1/photos/{name}").status_code in (404, 422)


def test_a_photo_that_has_gone_since_it_was_found_is_told(pipeline, tmp_path):
    with served(pipeline, index=index_of(pipeline, tmp_path)) as running:
        hit = running.client.post("/v1/search", json={"text": "a dog", "k": 1}).json()["hits"][0]
        next((tmp_path / "photos").glob(hit["path"].rpartition("/")[2])).unlink()
        assert "no longer" in refused(running.client.get(f"/v1/photos/{hit['id']}"), 404)
        again = running.client.post("/v1/search", json={"text": "a dog", "k": 1, "explain": True}).json()
        assert again["hits"][0]["why"] is None


def test_search_without_an_index_is_refused(pipeline):
    with served(pipeline) as running:
        assert "index" in refused(running.client.post("/v1/search", json={"text": "a dog"}), 409)
        assert running.client.get("/v1/health").json()["indexed"] is None


def test_health_tells_the_model_and_what_it_can(ask):
    told = ask.get("/v1/health").json()
    Health.model_validate(told)
    assert told["model"] == "tiny"
    assert told["queue"] == 0
    assert told["indexed"] == len(PHOTOS)
    assert set(told["can"]) == {"caption", "ground", "audit", "search"}


CAPTIONS = {
    "table.csv": "file,caption\nholiday/cat.jpg,a dog on a table\ncoffee.jpg,a red cup\n",
    "lines.jsonl": '{"file": "cat.jpg", "caption": "a dog on a table"}\n'
    '{"file": "coffee.jpg", "caption": "a red cup"}\n',
    "by-name.json": '{"cat": "a dog on a table", "coffee": ["a red cup"]}',
    "tokens.token.txt": "cat.jpg#0\ta dog on a table\ncoffee.jpg#0\ta red cup\n",
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_a_captions_file_is_audited_against_its_photos(ask, pipeline, name):
    files = [*form(*PHOTOS), ("captions", (name, CAPTIONS[name].encode()))]
    answer = ask.post("/v1/audit", files=files)
    assert answer.status_code == 200, answer.text
    Audits.model_validate(answer.json())
    told = answer.json()
    assert [(audit["path"], audit["caption"]) for audit in told["audits"]] == [
        ("cat.jpg", "a dog on a table"),
        ("coffee.jpg", "a red cup"),
    ]
    assert [noun["word"] for noun in told["audits"][0]["nouns"]] == ["dog", "table"]
    assert told["flagged"] == sum(audit["flagged"] for audit in told["audits"])
    assert sorted(told["unmatched"]) == ["astronaut.jpg", "photographer.jpg", "rocket.jpg"]
    direct = pipeline.audit(CAT, ["a dog on a table"])[0].to_json()
    assert told["audits"][0]["size"] == direct["size"]
    assert told["audits"][0]["nouns"][0]["support"] == pytest.approx(direct["nouns"][0]["support"], abs=0.01)


def test_captions_of_one_photo_are_audited(ask):
    told = ask.post("/v1/audit", json={"photos": [coded(CAT)], "captions": ["a dog", "two cats"]}).json()
    assert [audit["caption"] for audit in told["audits"]] == ["a dog", "two cats"]
    same = ask.post("/v1/audit", files=form(CAT), data={"captions": ["a dog", "two cats"]}).json()
    assert same["audits"][0]["nouns"][0]["word"] == "dog"


@pytest.mark.parametrize("data", [b"\x1f\x8b packed", b"\0\0", b"[1, 2", b"nothing of the kind"])
def test_a_file_that_holds_no_captions_is_told(ask, data):
    answer = ask.post("/v1/audit", files=[*form(CAT), ("captions", ("mine.json", data))])
    assert refused(answer, 422).startswith("mine.json: ")
    assert tempfile.gettempdir() not in answer.text


def test_more_captions_than_one_request_may_bring_are_refused(ask):
    many = "file,caption\n" + 501 * "cat.jpg,a dog\n"
    refused(ask.post("/v1/audit", files=[*form(CAT), ("captions", ("c.csv", many.encode()))]), 413)


def test_a_captions_file_of_any_name_is_read(ask):
    for name in ("captions", "x" * 400 + ".csv", "../../é\n.csv", ""):
        data = b"file,caption\ncat.jpg,a dog\n"
        coded_file = {"name": name[-300:], "data": base64.b64encode(data).decode()}
        answer = ask.post("/v1/audit", json={"photos": [coded(CAT)], "captions": coded_file})
        assert len(answer.json()["audits"]) == 1, answer.text


def test_a_photo_with_nothing_to_hold_against_it_is_no_error(ask):
    told = ask.post("/v1/audit", files=[*form(CAT), ("captions", ("c.csv", b"file,caption\nother.jpg,a dog\n"))]).json()
    assert told == {"audits": [], "flagged": 0, "unread": [], "unmatched": ["cat.jpg"]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415),
        ({"content": b""}, 415),
        ({"json": {}}, 422),
        ({"json": {"photos": []}}, 422),
        ({"json": {"photos": [{"data": "?"}]}}, 422),
        ({"json": {"photos": [{"data": ""}]}}, 422),
        ({"json": {"photos": [{"data": "aGVsbG8="}]}}, 422),
        ({"json": {"photos": [{"data": "aGVsbG8="}], "beam": 0}}, 422),
        ({"json": {"photos": [{"data": "aGVsbG8="}], "colour": "red"}}, 422),
        ({"json": {"photos": [{"path": "/etc/passwd"}]}}, 422),
        ({"files": {"photos": ("x.jpg", b"")}}, 422),
        ({"files": {"photos": ("x.jpg", b"hello")}, "data": {"beam": "many"}}, 422),
    ],
)
def test_what_cannot_be_used_is_told_and_never_a_traceback(ask, body, status):
    assert "Traceback" not in refused(ask.post("/v1/caption", **body), status)


def test_an_address_or_method_that_is_not_there_is_told(ask):
    refused(ask.get("/v1/nothing"), 404)
    refused(ask.get("/../pyproject.toml"), 404)
    assert "POST" in ask.get("/v1/caption").headers["allow"]


def test_limits_of_photos_pixels_and_bytes(pipeline, tmp_path):
    limits = Limits(photos=2, pixels=20_000, body=200_000, flight=200_000)
    with served(pipeline, limits=limits) as running:
        refused(running.client.post("/v1/caption", files=form(CAT, CAT, CAT)), 413)
        assert "pixels" in refused(running.client.post("/v1/caption", files=form(CAT)), 422)
        fits = draw_photo(tmp_path / "fits.png", (160, 120))
        assert running.client.post("/v1/caption", files=form(fits)).status_code == 200

        def chunks():
            for _ in range(100):
                yield b"x" * 10_000

        headers = {"content-type": "application/json"}
        refused(running.client.post("/v1/caption", content=chunks(), headers=headers), 413)
        assert running.service.worker.reserved == 0
        assert running.client.get("/v1/health").json()["limits"]["photos"] == 2


def test_a_full_queue_is_503_with_retry_after_and_the_rest_is_answered(pipeline):
    release = threading.Event()
    with served(pipeline, limits=Limits(queue=3, photos=3)) as running:
        running.service.worker.submit("held", lambda items: [release.wait(20) for _ in items], [None])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(running.client.post, "/v1/caption", files=form(CAT)) for _ in range(8)]
            while sum(one.done() for one in asked) < 5:
                time.sleep(0.01)
            assert running.client.get("/v1/health").json()["queue"] == 3
            release.set()
            answers = [one.result() for one in asked]
    busy = [answer for answer in answers if answer.status_code == 503]
    assert len(busy) == 5
    for answer in busy:
        refused(answer, 503)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert [answer.status_code for answer in answers if answer not in busy] == [200] * 3


def test_photos_of_several_requests_are_looked_at_together(pipeline):
    release = threading.Event()
    with served(pipeline, limits=Limits(batch=4)) as running:
        running.service.worker.submit("held", lambda items: [release.wait(20) for _ in items], [None])
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            asked = [pool.submit(running.client.post, "/v1/caption", files=form(photo)) for photo in PHOTOS]
            other = pool.submit(running.client.post, "/v1/caption", files=form(CAT), data={"beam": "1"})
            while running.queue_length < len(PHOTOS) + 1:
                time.sleep(0.01)
            release.set()
            for photo, answer in zip(PHOTOS, asked, strict=True):
                alike(answer.result().json()["captions"][0], pipeline.caption(photo))
            alike(other.result().json()["captions"][0], pipeline.caption(CAT, beam=1))
    assert sorted(running.batch_sizes) == [1, 1, 1, 4]  # what held it, 4 + 1 photos, and the other beam


def test_other_hosts_and_other_sites_are_refused(server, ask):
    refused(ask.get("/", headers={"host": "rebound.example"}), 403)
    refused(ask.get("/v1/health", headers={"host": "127.0.0.1.evil.example:80"}), 403)
    refused(ask.post("/v1/caption", files=form(CAT), headers={"sec-fetch-site": "cross-site"}), 403)
    assert ask.get("/v1/health", headers={"host": "localhost:1234"}).status_code == 200
    assert ask.get("/v1/health", headers={"host": "[::1]:1234"}).status_code == 200
    answer = ask.get("/", headers={"origin": "https://other.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_host_that_is_none_is_refused_whoever_has_the_token(pipeline):
    with served(pipeline, access=Access("127.0.0.1", TOKEN)) as running:
        for host, status in (("[::1]evil.com", 403), ("localhost:evil.com", 403), ("photos.example:80", 200)):
            headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
            assert running.client.get("/v1/health", headers=headers).status_code == status


def test_a_token_is_asked_of_everything_but_the_page(pipeline):
    with served(pipeline, access=Access("127.0.0.1", TOKEN)) as running:
        for wrong in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": f"Basic {TOKEN}"},
            {"authorization": "ü"},
        ):
            raw = {name: value.encode() for name, value in wrong.items()}
            answer = running.client.get("/v1/health", headers=raw)
            refused(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        right = {"authorization": f"Bearer {TOKEN}"}
        assert running.client.get("/v1/health", headers=right).status_code == 200
        assert running.client.post("/v1/caption", files=form(CAT), headers=right).status_code == 200
        assert running.client.get("/").status_code == 200
        proxied = {**right, "host": "photos.example"}
        assert running.client.get("/v1/health", headers=proxied).status_code == 200
        assert running.client.get("/openapi.json").json()["security"] == [{"token": []}]


@pytest.mark.parametrize("token", ["", "short", "sixteen letters and spaces", "sechzehn-zeichen-ü"])
def test_no_door_to_other_machines_without_a_good_token(token):
    with pytest.raises(ConfigError):
        Access("0.0.0.0", token)
    assert Access("0.0.0.0", TOKEN).token == TOKEN


@pytest.mark.parametrize("wrong", [{"queue": 0}, {"batch": 0}, {"wait": -1.0}, {"body": 10, "flight": 5}])
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError):
        Limits(**wrong)


def test_too_many_bytes_on_their_way_are_503(pipeline):
    held, headers = json.dumps({"photos": [coded(CAT)]}).encode(), {"content-type": "application/json"}
    with served(pipeline, limits=Limits(body=len(held), flight=len(held))) as running:
        host, _, port = running.address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as slow:
            head = f"POST /v1/caption HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: {len(held)}\r\n\r\n".encode() + held[:-100])
            for _ in range(20):  # with each answer, the server has read more of the slow one
                assert running.client.get("/v1/health").status_code == 200
            refused(running.client.post("/v1/caption", content=held, headers=headers), 503)
            slow.sendall(held[-100:])
            assert slow.recv(100).startswith(b"HTTP/1.1 200")
        assert running.client.post("/v1/caption", content=held, headers=headers).status_code == 200


def test_the_documents_of_the_api_need_no_other_site(ask):
    told = ask.get("/openapi.json").json()
    assert set(told["paths"]) >= {f"/v1/{name}" for name in ("caption", "ground", "search", "audit", "health")}
    for address in ("/", "/docs", "/app.js", "/style.css", "/docs.js"):
        answer = ask.get(address)
        assert answer.status_code == 200
        assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in answer.text
        assert httpx.head(str(answer.url), trust_env=False).status_code == 200


def test_words_of_the_tiny_model_are_its_own(ask):
    assert set(ask.post("/v1/caption", files=form(CAT)).json()["captions"][0]["caption"].split()) <= set(WORDS)


def test_a_photo_on_object_storage_is_shown_from_its_address(monkeypatch):
    asked = []
    monkeypatch.setattr(
        service, "open_image", lambda place, max_pixels: asked.append(place) or Image.new("RGB", (9, 6))
    )
    shown = service._thumbnail("s3://bucket/cat.jpg", 3, 100)
    assert Image.open(io.BytesIO(shown)).size == (3, 2)
    assert asked == ["s3://bucket/cat.jpg"]
