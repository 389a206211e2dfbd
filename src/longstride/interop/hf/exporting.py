"""Back out: an imported model as the Hugging Face folder it came from, tensor for tensor and file for file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longstride.contract import ModelFolderError, OptionError
from longstride.interop.exportable import exportable
from longstride.interop.hf.families import FAMILIES
from longstride.interop.hf.importing import PROVENANCE, SETTINGS
from longstride.interop.hf.marian import export_marian
from longstride.interop.hf.weights import SAFETENSORS, give_weights
from longstride.model_folder import ModelFolder
from longstride.nn.weights import write_tensors
from longstride.text.hf_tokenizer import HFTokenizer
from longstride.translator import Translator

FORMAT = "Hugging Face"


def export_hf(translator: Translator, folder: Path, precision: str = "fp32") -> str:
    """Fill an empty folder; says what was made. What was not imported is written as Marian, if it can be."""
    if origin(translator.folder) is None:
        return export_marian(translator, folder, precision)
    if precision != "fp32":
        raise OptionError(f"--precision expects fp32, as it was imported, for {FORMAT}, found {precision!r}.")
    write_origin(translator, folder)
    return f"The {FORMAT} folder that it was imported from."


def origin(folder: ModelFolder) -> dict[str, Any] | None:
    """What a model folder tells of the Hugging Face folder it was imported from, if it was."""
    told = folder.config.provenance.get(PROVENANCE)
    return told if isinstance(told, dict) else None


def write_origin(translator: Translator, folder: Path) -> None:
    """Write the folder that a model was imported from; its weights are in one file of safetensors."""
    home = translator.folder
    told = origin(home) or {}
    names, settings = told.get("tensors"), told.get("settings")
    family = next((one for one in FAMILIES if one.name == told.get("family")), None)
    if family is None or not isinstance(names, dict) or not isinstance(settings, dict):
        raise ModelFolderError(
            f"{home.config_file}: provenance.{PROVENANCE} expects what an import wrote, found other."
        )
    model = exportable(translator, FORMAT)
    state = give_weights(family, model.options, model.weights, names, told.get("logits_bias"), told.get("vocabulary"))
    write_tensors(state, folder / SAFETENSORS, {"format": "pt"})
    for name in SETTINGS:
        if name in settings:
            (folder / name).write_text(str(settings[name]), encoding="utf-8", newline="")
    if isinstance(translator.target_tokenizer, HFTokenizer):
        translator.target_tokenizer.write_files(folder)
