"""Rows run side by side, after what they need, and are stopped when time is over."""

import sys
from pathlib import Path

import pytest

from sightline.training.recipe import SHIPPED
from sightline.training.reproduce import choose, plan

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from run_rows import Row, read_rows, run  # noqa: E402

SHELL = ["sh", "-c"]


def test_rows_wait_for_what_they_need_and_are_left_out_where_it_failed(tmp_path):
    rows = [
        Row("second", (f"test -f {tmp_path}/first",), ("first",)),
        Row("first", (f"sleep 0.2; touch {tmp_path}/first; echo told",)),
        Row("broken", ("exit 3",)),
        Row("lost", ("true",), ("broken",)),
        Row("lost too", ("true",), ("lost",)),
    ]
    state = run(rows, SHELL, tmp_path / "logs", slots=2, seconds=30)
    assert state == {"second": "done", "first": "done", "broken": "failed", "lost": "left out", "lost too": "left out"}
    assert (tmp_path / "logs" / "first.log").read_text() == "told\n"


def test_no_more_than_the_slots_run_at_a_time(tmp_path):
    count = f"ls {tmp_path}/now | wc -l >> {tmp_path}/counts"
    word = f"mkdir -p {tmp_path}/now; touch {tmp_path}/now/$$; {count}; sleep 0.3; rm {tmp_path}/now/$$"
    run([Row(str(i), (word,)) for i in range(5)], SHELL, tmp_path / "logs", slots=2, seconds=30)
    assert max(map(int, (tmp_path / "counts").read_text().split())) <= 2


def test_what_still_runs_is_stopped_when_time_is_over(tmp_path):
    rows = [Row("long", ("sleep 60",)), Row("later", ("true",), ("long",))]
    assert run(rows, SHELL, tmp_path / "logs", slots=1, seconds=1) == {"long": "stopped", "later": "not begun"}


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
