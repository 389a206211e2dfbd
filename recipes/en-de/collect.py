"""Copy finished models and distilled data out of a run, and write down what they are: collect.py WORK STORE.

STORE/MANIFEST.json tells for each model its recipe, commit, hashes and scores; weights stay out of the repository, the
manifest is committed. Entries of models that this run does not have stay as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from longstride.bench.record_files import read_records
from longstride.bench.records import Quality, Record, Training
from longstride.model_folder import ModelFolder
from longstride.text.files import file_sha256, temporary_beside, written_whole

MANIFEST = "MANIFEST.json"
KEPT = ("recipe.yaml", "metrics.jsonl")
"""of a run's folder, beside the model itself"""
LEFT_OUT = ("speed-*", "*.old")
"""runs that were trained for their speed alone; what a later run has taken the place of"""
RECORDS = {"interleaved": "en-de-interleaved", "lattice": "en-de-lattice", "nat": "en-de-lattice"}
"""how a model's name begins, and the file of benchmarks/results that its records go to; en-de where nothing fits"""


def collect(work: Path, store: Path) -> list[str]:
    """Copy what is finished; the names of what was new."""
    manifest: dict[str, Any] = _read(store / MANIFEST)
    records = read_records([work / "records.jsonl"]) if (work / "records.jsonl").exists() else []
    new = []
    for run in sorted(path for path in work.iterdir() if path.is_dir()):
        model = run / "model" if (run / "model" / "config.json").is_file() else run
        if not (model / "config.json").is_file() or any(map(run.match, LEFT_OUT)):
            continue
        entry = describe(run.name, ModelFolder(model), records)
        before = manifest.get(run.name, {})
        if before.get("model_sha256") == entry["model_sha256"]:
            # What a person wrote about it, and earlier scores, stay.
            entry |= {name: before[name] for name in ("about", "recipe", "records") if name in before}
            entry["scores"] = {**before.get("scores", {}), **entry["scores"]}
        if before.get("model_sha256") != entry["model_sha256"] or not (store / run.name).is_dir():
            files = [model / name for name in entry["files"]] + [run / name for name in KEPT if (run / name).is_file()]
            _copy(files, store / run.name)
            new.append(run.name)
        manifest[run.name] = entry
    distilled = _distilled(work / "distilled", store / "distilled")
    if distilled:
        manifest["distilled"] = {**manifest.get("distilled", {}), **distilled}
        if "train" in distilled:
            manifest["distilled"].pop("train_shards", None)
        manifest["distilled"]["about"] = "the teacher's beam-5 output: " + " and ".join(sorted(distilled))
    _write(store / MANIFEST, manifest)
    return new


def describe(name: str, folder: ModelFolder, records: list[Record]) -> dict[str, Any]:
    """A model's entry."""
    provenance = folder.config.provenance
    recipe: dict[str, Any] = provenance.get("recipe") or {}
    source = provenance.get("tables", provenance)
    files = sorted(path for path in folder.path.iterdir() if path.is_file())
    told = f"English-German {name}"
    if recipe:
        size = {512: "base size", 256: "small size"}.get(recipe.get("model", {}).get("width"), "")
        learnt = "distilled" if "distilled" in str(recipe.get("data", {}).get("train_target", "")) else "original"
        parts = [told, size, f"{learnt} data; weights in {recipe.get('store', 'fp32')}"]
        told = ", ".join(part for part in parts if part)
    scored = [record for record in records if isinstance(record, Quality) and record.scores]
    trained = [record for record in records if isinstance(record, Training) and record.model_hash == folder.sha256]
    scores = {
        f"{record.workload.name.removeprefix('en-de ')} {record.scores[0].name}, {record.candidate}": round(
            record.scores[0].value, 2
        )
        for record in scored
        if record.model.hash == folder.sha256
    }
    return {
        "about": told,
        "recipe": f"recipes/en-de/{trained[-1].recipe}" if trained else str(recipe.get("name", "")),
        "commit": source.get("commit", ""),
        "model_sha256": folder.sha256,
        "files": {path.name: {"sha256": file_sha256(path), "bytes": path.stat().st_size} for path in files},
        "scores": scores,
        "records": f"benchmarks/results/{RECORDS.get(name.split('-')[0], 'en-de')}.jsonl",
    }


def _distilled(source: Path, target: Path) -> dict[str, Any]:
    """Copy whole distilled corpora; the hashes of their two sides."""
    found: dict[str, Any] = {}
    for split in ("valid", "train"):
        if not (source / split / "manifest.json").is_file():
            continue
        names = [f"{split}.src", f"{split}.tgt"]
        found[split] = {name: file_sha256(source / split / name) for name in names}
        files = [source / split / name for name in (*names, "manifest.json")]
        here = [target / split / name for name in names]
        if not all(path.is_file() and file_sha256(path) == found[split][path.name] for path in here):
            _copy(files, target / split)
    return found


def _copy(files: list[Path], folder: Path) -> None:
    """Replace a folder by these files, whole or not at all."""
    with temporary_beside(folder, folder=True) as temporary:
        for path in files:
            shutil.copyfile(path, temporary / path.name)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _write(path: Path, values: dict[str, Any]) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for one in collect(Path(sys.argv[1]), Path(sys.argv[2])):
        print(f"collected {one}")
