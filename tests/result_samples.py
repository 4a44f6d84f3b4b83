"""Records as `sightline reproduce` writes them."""

from __future__ import annotations

from sightline.training.results import DataRecord, Features, Metrics, RecipeRecord, ResultRecord


def record(row: str = "line-6-XE", cider: float = 50.0, **changes: object) -> ResultRecord:
    values = {
        "paper": "jran",
        "table": "table-1",
        "row": row,
        "recipe": RecipeRecord(f"jran/table-1#{row}", "abc", ("seed=1",)),
        "commit": "0123456",
        "seeds": (0,),
        "data": DataRecord(("coco/captions_train2014.json.gz",), 4407),
        "split": "test (coco/karpathy_test.txt.gz)",
        "features": Features("features/coco-lite2", "f00"),
        "supervision": "ImageNet",
        "stage": "cross-entropy",
        "metrics": Metrics({"CIDEr": cider, "BLEU-4": 20.0}),
        "published": {"CIDEr": 128.4},
        "comparable": "other features",
        "minutes": 5.0,
        "hardware": "NVIDIA H200, torch 2.11.0",
        **changes,
    }
    return ResultRecord(**values)
