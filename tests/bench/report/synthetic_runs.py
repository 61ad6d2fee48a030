"""Run folders as a real run writes them, from a simulated feature space: for tests and for looking at pages.

Classes are blobs in R^8. Every task turns the whole space (which an adapter can learn) and pushes each class
a little on its own (which it cannot). Accuracies, distances and counts come from `camp.bench.evaluation`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from camp.bench.evaluation.accuracy import accuracy_row
from camp.bench.evaluation.class_groups import PROTOCOLS
from camp.bench.evaluation.confusion import split_confusion
from camp.bench.evaluation.drift import centroid_drift
from camp.bench.evaluation.feature_map import fit_plane
from camp.bench.evaluation.matching import match_on_test, match_task
from camp.bench.evaluation.summary import summarise
from camp.bench.evaluation.upper_bound import nearest_mean
from camp.bench.results import Results, StoredRun
from camp.core.files import append_json_line, write_json

D = 8
PER_CLASS = 20
SOUNDS = ["Ash", "Brook", "Copper", "Dusk", "Elder", "Fern", "Grey", "Hazel", "Ivory", "Juniper"]
BIRDS = ["finch", "warbler", "tern", "jay", "wren", "gull", "sparrow", "vireo", "kingfisher", "oriole"]


def make_run(
    folder: Path,
    *,
    method: str = "camp",
    seed: int = 0,
    tasks: int = 4,
    planned: int | None = None,
    known: int = 6,
    novel: int = 2,
    exemplars: int = 0,
    estimated: bool = False,
    images: int = 6,
    epochs: int = 30,
    names: dict[int, str] | None = None,
    config: dict[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """Write a run folder and return it; `overrides` replace entries of `results.json`."""
    rng = np.random.default_rng(seed)
    per_task = known + novel
    n_classes = tasks * per_task
    class_names = [f"{SOUNDS[c % 10]} {BIRDS[(c * 3 + c // 10) % 10]}" for c in range(n_classes)]
    for c, name in (names or {}).items():
        class_names[c] = name
    novel_of = [set(range(t * per_task + known, (t + 1) * per_task)) for t in range(tasks)]
    is_novel = np.array([c % per_task >= known for c in range(n_classes)])
    task_of = np.arange(n_classes) // per_task

    means = rng.normal(size=(n_classes, D)) * 2.2
    centroids = np.zeros((0, D))
    first_stored = np.zeros((0, D))
    rows: dict[str, list[Any]] = {name: [] for name in PROTOCOLS}
    results: list[dict[str, Any]] = []
    for t in range(tasks):
        so_far = (t + 1) * per_task
        if t:
            turn, _ = np.linalg.qr(np.eye(D) + 0.25 * rng.normal(size=(D, D)))
            turn = turn * np.sign(np.diag(turn))
            own = 0.35 if method == "camp" else 0.9
            means = means @ turn + own * rng.normal(size=means.shape)
            stored = centroids
            if method == "camp":
                centroids = stored @ turn + 0.15 * rng.normal(size=stored.shape)
            drift = centroid_drift(stored, centroids, means[: len(stored)], is_novel[: len(stored)])
        blur = np.where(is_novel, 0.9, 0.2)[:so_far, None]
        new = (means[:so_far] + blur * rng.normal(size=(so_far, D)))[t * per_task :]
        centroids, first_stored = np.concatenate([centroids, new]), np.concatenate([first_stored, new])

        true = [np.repeat(np.arange(i * per_task, (i + 1) * per_task), PER_CLASS) for i in range(t + 1)]
        features = [means[c] + 1.5 * rng.normal(size=(len(c), D)) for c in true]
        classes = np.arange(so_far)
        guesses = [nearest_mean(f, centroids, classes) for f in features]
        inside = [slice(i * per_task, (i + 1) * per_task) for i in range(t + 1)]
        aware = [nearest_mean(f, centroids[s], classes[s]) for f, s in zip(features, inside)]
        matched = match_on_test(
            np.concatenate(guesses), np.concatenate(true), np.where(is_novel[:so_far], -1, classes)
        )
        bound = [nearest_mean(f, means[:so_far], classes) for f in features]
        rows["agnostic"].append(accuracy_row(guesses, true, novel_of[: t + 1]))
        rows["aware"].append(accuracy_row(aware, true, novel_of[: t + 1]))
        rows["test_hungarian"].append(accuracy_row([matched[g] for g in guesses], true, novel_of[: t + 1]))
        alone = [match_task(g, c, so_far)[g] for g, c in zip(guesses, true)]
        rows["task_hungarian"].append(accuracy_row(alone, true, novel_of[: t + 1]))
        rows["upper_bound"].append(accuracy_row(bound, true, novel_of[: t + 1]))
        scan = [
            [k, float(0.8 - 0.012 * abs(k - per_task) ** 1.3 + 0.01 * rng.normal())]
            for k in range(known, known + 4 * max(novel, 2))
        ]
        results.append(
            {
                "task": t,
                "known": class_names[t * per_task : t * per_task + known],
                "novel": class_names[t * per_task + known : (t + 1) * per_task],
                "labelled": known * 15,
                "unlabelled": known * 15 + novel * 30,
                "test": per_task * PER_CLASS,
                "novel_true": novel,
                "novel_used": novel + (t % 2 if estimated else 0),
                "curve": scan if estimated else None,
                **{protocol: lines[-1].model_dump() for protocol, lines in rows.items()},
                "drift": drift.model_dump() if t else None,
            }
        )

    flat_true, flat_guess = np.concatenate(true), np.concatenate(guesses)
    plane = fit_plane(np.concatenate(features))
    sample = rng.permutation(len(flat_true))[:400]
    spots = plane.project(np.concatenate(features))
    places = {"stored": first_stored, "adapted": centroids, "true": means}
    value = {
        "format": 2,
        "name": f"runs/{folder.name}",
        "method": method,
        "dataset": "birds",
        "dataset_title": "Simulated birds",
        "backbone": "efficientnet-lite0",
        "seed": seed,
        "exemplars": exemplars,
        "k": "estimated" if estimated else "known",
        "resolution": 224,
        "views": 8,
        "epochs": epochs,
        "tasks_planned": planned or tasks,
        "seconds": {
            "total": 312.0,
            "bank": 140.0,
            "train": 120.0,
            "discover": 22.0,
            "adapt": 8.0,
            "evaluate": 22.0,
        },
        "notes": ["The backbone was trained with ImageNet's labels."],
        "command": f"camp run --dataset birds --method {method} --seed {seed} --out runs/{folder.name}",
        "tasks": results,
        "summary": {protocol: summarise(lines).model_dump() for protocol, lines in rows.items()},
        "confusion": split_confusion(
            task_of[flat_true], task_of[flat_guess], is_novel[flat_true], tasks
        ).model_dump(),
        "map": {
            "points": [
                [*map(float, spots[n]), int(task_of[c]), int(not is_novel[c]), int(c)]
                for n, c in ((n, flat_true[n]) for n in sample)
            ],
            "centroids": [
                {
                    "id": c,
                    "task": int(task_of[c]),
                    "kind": "novel" if is_novel[c] else "known",
                    "name": class_names[c],
                    **{name: plane.project(at[c : c + 1])[0].tolist() for name, at in places.items()},
                }
                for c in range(n_classes)
            ],
        },
        "categories": [
            {
                "id": c,
                "task": int(task_of[c]),
                "kind": "novel" if is_novel[c] else "known",
                "name": f"category {c}" if is_novel[c] else class_names[c],
                "matched": class_names[c],
                "size": int(rng.integers(20, 50)),
                "purity": float(rng.uniform(0.4, 1.0)),
                "images": [f"thumbnails/{c}-{n}.jpg" for n in range(images)],
            }
            for c in range(n_classes)
        ],
    }
    folder.mkdir(parents=True)
    write_json(folder / "results.json", value | overrides)
    write_json(folder / "config.json", {"seed": seed, "method": method, "out": str(folder), **(config or {})})
    (folder / "thumbnails").mkdir()
    for c in range(n_classes if images else 0):
        for n in range(images):
            _image(rng, c).save(folder / "thumbnails" / f"{c}-{n}.jpg", quality=80)
    for t in range(tasks):
        for epoch in range(epochs):
            loss = 3 * np.exp(-epoch / 8) + 1.2 + 0.05 * rng.normal()
            parts = {"loss": loss, "simclr": 0.7 * loss, "supcon": 0.5 * loss, "seconds": 0.9}
            append_json_line(folder / "metrics.jsonl", {"task": t, "epoch": epoch, **parts})
    return folder


def make_incremental_run(folder: Path, **settings: Any) -> Path:
    """The same for class-incremental learning: no novel class, and every image is labelled."""
    make_run(folder, **{"known": 3, "novel": 0, "images": 0, "epochs": 0, **settings})
    tasks = json.loads((folder / "results.json").read_text())["tasks"]
    for task in tasks:
        task["labelled"], task["unlabelled"] = task["labelled"] + task["unlabelled"], 0
    edit_results(folder, tasks=tasks)
    return folder


def edit_results(folder: Path, **changes: Any) -> None:
    """Replace entries of a run's `results.json`."""
    path = folder / "results.json"
    write_json(path, json.loads(path.read_text()) | changes)


def edited(run: StoredRun, edit: Callable[[dict[str, Any]], object]) -> StoredRun:
    """The same run with other results: `edit` changes those of its results.json."""
    value = run.results.model_dump()
    edit(value)
    return replace(run, results=Results.model_validate(value))


def forget(folder: Path, share: float) -> None:
    """Have a run forget this share of all classes; what is negative was won."""
    summary = json.loads((folder / "results.json").read_text())["summary"]
    summary["agnostic"]["forgetting"]["all"] = share
    edit_results(folder, summary=summary)


def without_task_hungarian(folder: Path) -> Path:
    """The same run as it was written before there was that protocol."""
    value = json.loads((folder / "results.json").read_text())
    for task in value["tasks"]:
        del task["task_hungarian"]
    del value["summary"]["task_hungarian"]
    write_json(folder / "results.json", value)
    return folder


def _image(rng: np.random.Generator, number: int) -> Image.Image:
    """A round bird on a field, coloured by its class."""
    hue = number * 47 % 255
    field = Image.new("HSV", (96, 96), (int(rng.integers(60, 140)), 60, int(rng.integers(120, 220))))
    draw = ImageDraw.Draw(field)
    x, y = rng.integers(25, 55, 2)
    draw.ellipse([x - 20, y - 12, x + 22, y + 20], fill=(hue, 180, 200))
    draw.ellipse([x + 8, y - 24, x + 30, y - 4], fill=(hue, 150, 230))
    draw.polygon([(x + 29, y - 16), (x + 40, y - 13), (x + 29, y - 10)], fill=(25, 220, 240))
    return field.convert("RGB")
