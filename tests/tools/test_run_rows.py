"""Rows run side by side, after what they need, from data read once, and are stopped when time is over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe_samples import write_data
from sightline.files import read_json
from sightline.training.data import build_data
from sightline.training.recipe import SHIPPED
from sightline.training.reproduce import choose, plan
from sightline.training.reproduce import run as run_planned

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from run_rows import Row, SharedData, Words, main, read_rows, reread, run  # noqa: E402


def shell(row):
    return subprocess.call(["sh", "-c", *row.words])


def test_rows_wait_for_what_they_need_and_are_left_out_where_it_failed(tmp_path):
    rows = [
        Row("second", (f"test -f {tmp_path}/first",), ("first",)),
        Row("first", (f"sleep 0.2; touch {tmp_path}/first; echo told",)),
        Row("broken", ("exit 3",)),
        Row("lost", ("true",), ("broken",)),
        Row("lost too", ("true",), ("lost",)),
    ]
    state = run(lambda: rows, shell, tmp_path / "logs", slots=2, seconds=30)
    assert state == {"second": "done", "first": "done", "broken": "failed", "lost": "left out", "lost too": "left out"}
    assert (tmp_path / "logs" / "first.log").read_text() == "told\n"


def test_no_more_than_the_slots_run_at_a_time(tmp_path):
    count = f"ls {tmp_path}/now | wc -l >> {tmp_path}/counts"
    word = f"mkdir -p {tmp_path}/now; touch {tmp_path}/now/$$; {count}; sleep 0.3; rm {tmp_path}/now/$$"
    rows = [Row(str(i), (word,)) for i in range(5)]
    run(lambda: rows, shell, tmp_path / "logs", slots=2, seconds=30)
    assert max(map(int, (tmp_path / "counts").read_text().split())) <= 2


def test_what_still_runs_is_stopped_when_time_is_over(tmp_path):
    rows = [Row("long", ("sleep 60",)), Row("later", ("true",), ("long",))]
    state = run(lambda: rows, shell, tmp_path / "logs", slots=1, seconds=1)
    assert state == {"long": "stopped", "later": "not begun"}


def test_what_is_prepared_is_prepared_here_and_before_its_row(tmp_path):
    seen = []
    row = Row("a", ("test $PREPARED = yes",))

    def prepare(row):
        seen.append((row.id, os.getpid()))
        os.environ["PREPARED"] = "yes"

    try:
        assert run(lambda: [row], shell, tmp_path / "logs", slots=1, seconds=30, prepare=prepare) == {"a": "done"}
    finally:
        os.environ.pop("PREPARED", None)
    assert seen == [("a", os.getpid())]


def test_rows_that_are_added_to_the_file_run_and_rows_that_are_taken_out_stop(tmp_path, capsys):
    file = tmp_path / "rows.yaml"
    file.write_text("[{id: long, row: x}]")
    read = reread(file)
    assert [row.id for row in read()] == ["long-0"]
    for stamp, text in enumerate(("[{id: short", '[{id: short, row: "jran \'a"}]', "[{id: short, row: 5}]", "abc"), 1):
        file.write_text(text)  # while it is written
        os.utime(file, ns=(stamp, stamp))
        assert [row.id for row in read()] == ["long-0"]
        assert "is as it was before" in capsys.readouterr().err
    file.write_text("[{id: short, row: x}]")
    os.utime(file, ns=(9, 9))
    assert [row.id for row in read()] == ["short-0"]
    sleeping, next_one = Row("long", ("sleep 60",)), Row("short", ("true",))
    looks = iter([[sleeping], [sleeping]])
    state = run(lambda: next(looks, [next_one]), shell, tmp_path / "logs", slots=1, seconds=30)
    assert state == {"short": "done"}


@pytest.mark.parametrize("text", ["[{id: a, row: x}, {id: a, row: y}]", "[{id: a, row: x, needs: [b]}]"])
def test_files_that_contradict_themselves_are_refused(tmp_path, text):
    (tmp_path / "rows.yaml").write_text(text)
    with pytest.raises(SystemExit):
        read_rows(tmp_path / "rows.yaml")


def test_a_row_with_seeds_is_one_process_a_seed_and_waits_for_the_same_seed(tmp_path):
    text = "[{id: a, row: x, seeds: [0, 2]}, {id: b, row: y z, needs: [a], seeds: [2]}]"
    (tmp_path / "rows.yaml").write_text(text)
    assert read_rows(tmp_path / "rows.yaml") == [
        Row("a-0", ("x", "--seeds", "0")),
        Row("a-2", ("x", "--seeds", "2")),
        Row("b-2", ("y", "z", "--seeds", "2"), ("a-2",)),
    ]


@pytest.mark.parametrize("path", sorted((TOOLS / "rows").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_listed_row_is_one_of_a_recipe_with_the_keys_it_changes(path):
    for row in read_rows(path):
        paper, *rest = row.words  # the last two are its seed
        options = dict(zip(rest[:4:2], rest[1:4:2], strict=True))
        chosen = choose(paper, options["--table"], options["--rows"].split(","), SHIPPED)
        assert plan(chosen, rest[4:-2])


TINY = (
    "model.region_width=8 model.grid_width=8 stages.cross-entropy.steps=2 stages.cross-entropy.batch.size=2 "
    "stages.cross-entropy.select.every=0 evaluate.metrics=[cider]"
)


def words(table, rows):
    return Words.of(Row("a", (*f"jran --table {table} --rows {rows} {TINY}".split(), "--seeds", "1")))


def test_data_is_read_once_for_rows_that_train_on_it_and_is_what_is_read_otherwise(tmp_path):
    base, shared = write_data(tmp_path / "data"), SharedData()

    def data_of(row, vocabulary=None):
        recipe = row.recipe
        arguments = (recipe.data, recipe.model, recipe.stage_list())
        return arguments, shared(*arguments, base=base, vocabulary=vocabulary)

    line_6, line_4, line_1 = (words("flickr8k", row).plan()[0] for row in ("line-6", "line-4", "line-1"))
    arguments, data = data_of(line_6)
    alone = build_data(*arguments, base=base)
    assert (data.card(), data.notes) == (alone.card(), alone.notes)
    assert data_of(line_4)[1] is data
    assert data_of(line_6.with_seed(5), vocabulary=alone.vocabulary)[1] is data  # of a model that it starts from
    assert data_of(line_1)[1] is not data  # it reads regions alone


def test_a_mistyped_row_fails_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SIGHTLINE_DATA", str(write_data(tmp_path / "data")))
    rows = ["{id: typo, row: jran --tabel 1}", f'{{id: right, row: "jran --table flickr8k --rows line-6 {TINY}"}}']
    (tmp_path / "rows.yaml").write_text("\n".join(f"- {row}" for row in rows))
    assert main([str(tmp_path / "rows.yaml"), "--out", str(tmp_path / "runs"), "--device", "cpu"]) == 1
    assert "1 failed, 1 done" in capsys.readouterr().out
    assert (tmp_path / "runs" / "jran" / "results.html").is_file()


def test_rows_trained_side_by_side_are_those_that_are_trained_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SIGHTLINE_DATA", str(write_data(tmp_path / "data")))
    rows = [f'- {{id: {name}, row: "jran --table flickr8k --rows {name} {TINY}"}}' for name in ("line-6", "line-3")]
    (tmp_path / "rows.yaml").write_text("\n".join(rows))
    arguments = [str(tmp_path / "rows.yaml"), "--slots", "2", "--out", str(tmp_path / "runs"), "--device", "cpu"]
    assert main([*arguments, "--dry"]) == 0
    assert not (tmp_path / "runs" / "jran").exists()
    for _ in range(2):  # the second time, what is finished stays
        assert main(arguments) == 0
        assert "2 done" in capsys.readouterr().out
    assert (tmp_path / "runs" / "records" / "jran-flickr8k-line-6.json").is_file()
    assert (tmp_path / "runs" / "jran" / "results.html").is_file()
    run_planned([row.with_seed(0) for row in words("flickr8k", "line-6").plan()], tmp_path / "alone", "cpu")
    beside, alone = (read_json(tmp_path / of / "jran/flickr8k/line-6/metrics.json") for of in ("runs", "alone"))
    assert beside == alone
