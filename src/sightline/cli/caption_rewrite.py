"""The second pass of `sightline caption --distinct` over captions in files: groups that changed are told apart."""

from __future__ import annotations

from sightline.caption_work import CaptionWork
from sightline.cli.caption_files import Files
from sightline.distinct_captions import Words, alike, gist, tell_group_apart
from sightline.export.caption_json import caption_of
from sightline.files import fingerprint
from sightline.jobs.ledger import Ledger


def rewrite(files: Files, work: CaptionWork, ledger: Ledger) -> None:
    """Rewrite what is alike among the photos that were named; a group that is as it was keeps what it has."""
    ids = [photo.id for photo in files.photos if photo.id in files.log]
    groups = [[ids[at] for at in group] for group in alike([files.log[id]["caption"].split() for id in ids])]
    marks = {id: mark for group in groups for mark in [_mark(group, ledger)] for id in group}
    files.restore_first(id for id in list(files.apart) if files.apart.mark(id) != marks.get(id))
    waiting = [group for group in groups if not all(id in files.apart for id in group)]
    if not waiting:
        return
    files.restore_first(id for group in waiting for id in group)
    again = {id for group in waiting for id in group}
    taken: set[Words] = {gist(files.told(id)["caption"].split()) for id in files.log if id not in again}
    paths = {id: photo.path for photo in files.photos for id in [photo.id]}
    group_of = {paths[group[-1]]: group for group in waiting}
    for last in files.listeners.progress("telling apart")([paths[id] for group in waiting for id in group]):
        if (group := group_of.get(last)) is not None:
            said = [caption_of(files.told(id)) for id in group]
            for one in tell_group_apart(work.pipeline, said, taken, work.wanted.rules(), bad=files.listeners.bad):
                files.rewrite(one, marks[group[0]])
            files.flush()


def _mark(group: list[str], ledger: Ledger) -> str:
    """What the captions of a group depend on: which photos they are, and as what they were."""
    return fingerprint(*(f"{id} {ledger.get(id)}" for id in sorted(group)))
