"""Rows of the index as LanceDB takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sightline.scene import Array
from sightline.search.keywords import keywords
from sightline.search.rows import Row

AT_ONCE = 1000  # paths in one question
COLUMNS = ["path", "root", "bytes", "changed", "content", "width", "height", "caption", "vector"]


def schema_of(width: int, maker: str) -> Any:
    """The table's columns; which model made the rows is written beside them."""
    import pyarrow as pa

    numbers = {name: pa.int64() for name in ("bytes", "changed", "width", "height")}
    texts = {name: pa.string() for name in ("path", "root", "content", "caption", "words")}
    kinds = {**texts, **numbers, "captioned": pa.bool_(), "vector": pa.list_(pa.float32(), width)}
    return pa.schema(kinds.items(), metadata={"maker": maker})


def storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What object storage has to be told: the AWS_… variables that other tools read too.

    >>> storage_options({"AWS_ENDPOINT_URL": "http://localhost:9000", "HOME": "/root"})
    {'aws_endpoint': 'http://localhost:9000', 'allow_http': 'true'}
    """
    options = {name.lower(): value for name, value in environment.items() if name.startswith("AWS_")}
    if endpoint := options.pop("aws_endpoint_url", ""):
        options["aws_endpoint"] = endpoint
    if options.get("aws_endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return options


def among(paths: Iterable[str]) -> Iterator[str]:
    """Conditions that hold for some paths."""
    quoted = ["'" + path.replace("'", "''") + "'" for path in paths]
    for start in range(0, len(quoted), AT_ONCE):
        yield f"path IN ({', '.join(quoted[start : start + AT_ONCE])})"


def row_of(told: Mapping[str, Any]) -> Row:
    """A row of what was told of one."""
    mark, size = (told["bytes"], told["changed"]), (told["width"], told["height"])
    vector: Array = np.asarray(told["vector"], np.float32)
    return Row(told["path"], told["root"], mark, told["content"], size, vector, told["caption"])


def arrow_of(rows: Sequence[Row], schema: Any) -> Any:
    """Some rows as columns."""
    import pyarrow as pa

    width, flat = len(rows[0].vector), np.concatenate([row.vector for row in rows]).astype(np.float32)
    columns = {
        "path": [row.path for row in rows],
        "root": [row.root for row in rows],
        "bytes": [row.mark[0] for row in rows],
        "changed": [row.mark[1] for row in rows],
        "content": [row.content for row in rows],
        "width": [row.size[0] for row in rows],
        "height": [row.size[1] for row in rows],
        "caption": [row.caption for row in rows],
        "captioned": [row.caption is not None for row in rows],
        "words": [" ".join(keywords(row.caption or "")) for row in rows],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(flat), width),
    }
    return pa.table(columns, schema=schema)
