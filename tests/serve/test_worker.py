"""Batches that are worked on at once: they are begun in order, share the jobs, and stay clear of each other."""

import concurrent.futures
import contextlib
import threading

import pytest
import torch

from serve_samples import PHOTOS, index_of, served, tiny_pipeline, waited_for
from sightline.pipeline import FEW_PHOTOS
from sightline.serve.limits import Limits, Refusal
from sightline.serve.worker import Worker

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@contextlib.contextmanager
def working(batches=2, **limits):
    """A worker whose threads wait for jobs."""
    worker = Worker(Limits(**limits), batches)
    assert waited_for(lambda: worker._idle == batches)
    try:
        yield worker
    finally:
        worker.close()


class Held:
    """Work that waits until it is released."""

    def __init__(self):
        self.began, self.release = threading.Event(), threading.Event()

    def __call__(self, items):
        self.began.set()
        assert self.release.wait(20)
        return items


def held(worker, *items):
    """Jobs of a kind of their own that a thread has begun with, and their results to come."""
    work = Held()
    results = worker.submit(work, work, items)
    assert work.began.wait(20)
    return work, results


def test_a_server_works_on_two_batches_at_once_with_a_thread_each():
    both, threads = threading.Barrier(2, timeout=20), []

    def work(items):
        both.wait()
        threads.append(torch.get_num_threads())
        return items

    with served(tiny_pipeline(), limits=Limits(batch=3)) as running:
        results = running.service.worker.submit("work", work, range(6))
        assert [result.result(20) for result in results] == list(range(6))
    assert threads == [1, 1]
    assert running.batch_sizes == [3, 3]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a thread that begins after the server
        assert pool.submit(torch.get_num_threads).result() == 2


def test_captions_of_batches_that_are_made_at_once_are_those_of_the_direct_call():
    pipeline = tiny_pipeline()
    photos = PHOTOS * 4
    direct = {photo.name: pipeline.caption(photo) for photo in PHOTOS}
    with served(pipeline, limits=Limits(batch=3)) as running, concurrent.futures.ThreadPoolExecutor(8) as pool:
        files = [{"photos": (photo.name, photo.read_bytes())} for photo in photos]
        answers = list(pool.map(lambda file: running.client.post("/v1/caption", files=file).json(), files))
    for photo, answer in zip(photos, answers, strict=True):
        (one,) = answer["captions"]
        assert (one["path"], one["caption"]) == (photo.name, direct[photo.name].text)
        assert one["log_prob"] == pytest.approx(direct[photo.name].log_prob, abs=1e-3)


def test_captions_searches_groundings_and_audits_at_once_are_answered_as_alone(tmp_path):
    pipeline = tiny_pipeline()
    wishes = [
        ("caption", "photos", {}, lambda told: told["captions"][0]["caption"]),
        ("search", "photo", {"k": "3"}, lambda told: [hit["path"] for hit in told["hits"]]),
        ("ground", "photo", {"sentence": "a dog on a table"}, lambda told: [bool(one["box"]) for one in told["words"]]),
        (
            "audit",
            "photos",
            {"captions": "two red cups"},
            lambda told: [one["nouns"][0]["word"] for one in told["audits"]],
        ),
    ]
    asked = [(photo, *wish) for photo in PHOTOS for wish in wishes]
    with served(pipeline, index=index_of(pipeline, tmp_path)) as running:

        def ask(photo, address, name, fields, read):
            files = {name: (photo.name, photo.read_bytes())}
            answer = running.client.post(f"/v1/{address}", files=files, data=fields)
            assert answer.status_code == 200, answer.text
            return read(answer.json())

        alone = [ask(*one) for one in asked]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda one: ask(*one), asked * 3)) == alone * 3


@pytest.mark.parametrize(
    ("jobs", "sizes"), [(1, [1]), (FEW_PHOTOS, [FEW_PHOTOS]), (3, [1, 2]), (6, [3, 3]), (8, [4, 4]), (9, [1, 4, 4])]
)
def test_idle_threads_share_what_waits_but_few_photos_are_one_threads_work(jobs, sizes):
    done = []

    def work(items):
        done.append(len(items))
        waited_for(lambda: jobs <= FEW_PHOTOS or len(done) > 1)  # until both threads have begun
        return [-item for item in items]

    with working(batch=4) as worker:
        results = worker.submit("work", work, range(jobs))
        assert [result.result(20) for result in results] == [-item for item in range(jobs)]
    assert sorted(done) == sizes


def test_batches_are_begun_in_the_order_of_their_coming():
    with working(batch=2) as worker:
        first, first_results = held(worker, 1)
        second, _ = held(worker, 2)
        begun = []
        later = [worker.submit(kind, lambda items: begun.append(items) or items, [kind]) for kind in "abcd"]
        first.release.set()  # one thread does all of them while the other is still at its batch
        assert [result.result(20) for (result,) in later] == list("abcd")
        assert (begun, first_results[0].result()) == ([["a"], ["b"], ["c"], ["d"]], 1)
        second.release.set()


def test_a_client_that_leaves_one_batch_disturbs_no_other():
    with working(batch=2) as worker:
        first, left = held(worker, 1, 2)
        second, stayed = held(worker, 3, 4)
        waiting = worker.submit("work", list, [5, 6])
        assert waiting[0].cancel()
        assert not left[0].cancel()  # it was begun with; its client's request has gone all the same
        second.release.set()
        assert [result.result(20) for result in (*stayed, waiting[1])] == [3, 4, 6]
        assert not left[1].done()
        first.release.set()
        assert left[1].result(20) == 2
        assert [result.result(20) for result in worker.submit("work", list, [7])] == [7]


def test_a_batch_that_fails_disturbs_no_other():
    def fail(items):
        raise ZeroDivisionError

    with working() as worker:
        work, results = held(worker, 1)
        (failed,) = worker.submit("fail", fail, [2])
        assert isinstance(failed.exception(20), ZeroDivisionError)
        work.release.set()
        assert results[0].result(20) == 1


def test_closing_waits_for_every_batch_that_was_begun_and_refuses_the_rest():
    with working() as worker:
        first, one = held(worker, 1)
        second, two = held(worker, 2)
        (rest,) = worker.submit("work", list, [3])
        closing = threading.Thread(target=worker.close)
        closing.start()
        assert isinstance(rest.exception(20), Refusal)
        first.release.set()
        assert one[0].result(20) == 1
        closing.join(0.2)
        assert closing.is_alive()
        second.release.set()
        closing.join(20)
        assert not closing.is_alive()
        assert two[0].result(0) == 2
        with pytest.raises(Refusal):
            worker.submit("work", list, [4])


def test_on_an_accelerator_there_is_one_batch_at_a_time():
    pipeline = tiny_pipeline()
    pipeline.device = torch.device("cuda")  # nothing is computed on it
    threads = []
    with served(pipeline) as running:
        running.service.worker.submit("work", lambda items: threads.append(torch.get_num_threads()) or items, [1])
        assert waited_for(lambda: threads == [2])
        assert len(running.service.worker._threads) == 1
