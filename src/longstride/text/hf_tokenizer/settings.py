"""What a Hugging Face folder says of its tokenizer beside the vocabulary: class, special and added tokens, flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longstride.contract import ModelFolderError

Family = Literal["marian", "m2m100", "nllb", "mbart", "mbart50", "t5", "bart", "pegasus", "tokenizers"]
"""Whose prefix, suffix and language tokens; "tokenizers": whatever tokenizer.json says."""

TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
TOKENIZER_JSON = "tokenizer.json"

CLASSES: dict[str, Family] = {
    "MarianTokenizer": "marian",
    "M2M100Tokenizer": "m2m100",
    "NllbTokenizer": "nllb",
    "MBartTokenizer": "mbart",
    "MBart50Tokenizer": "mbart50",
    "T5Tokenizer": "t5",
    "BartTokenizer": "bart",
    "RobertaTokenizer": "bart",
    "PegasusTokenizer": "pegasus",
    "PreTrainedTokenizer": "tokenizers",
    "TokenizersBackend": "tokenizers",
}
"""tokenizer_class, without "Fast" at its end."""
MODEL_TYPES: dict[str, Family] = {
    "marian": "marian",
    "m2m_100": "m2m100",
    "nllb-moe": "nllb",
    "mbart": "mbart",
    "t5": "t5",
    "mt5": "t5",
    "umt5": "t5",
    "bart": "bart",
    "pegasus": "pegasus",
}
"""model_type of config.json, where no class is named."""

_ORDER = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""In which special tokens that a vocabulary lacks get their ids."""
_COMMON = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
_ROBERTA = {**_COMMON, "bos_token": "<s>", "sep_token": "</s>", "cls_token": "<s>", "mask_token": "<mask>"}
_DEFAULTS: dict[Family, dict[str, str]] = {
    "marian": _COMMON,
    "m2m100": {**_COMMON, "bos_token": "<s>", "sep_token": "</s>"},
    "nllb": _ROBERTA,
    "mbart": _ROBERTA,
    "mbart50": {name: token for name, token in _ROBERTA.items() if name != "bos_token"},
    "t5": _COMMON,
    "bart": _ROBERTA,
    "pegasus": {**_COMMON, "mask_token": "<mask_2>"},
    "tokenizers": {},
}


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in the text before anything else is done to it."""

    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


@dataclass(frozen=True)
class Settings:
    """All that is said beside the vocabulary."""

    family: Family
    values: Mapping[str, Any]
    """tokenizer_config.json"""
    named: Mapping[str, AddedToken]
    """eos_token and the like, in the order in which missing ones get their ids"""
    extra: tuple[AddedToken, ...]
    """further special tokens"""
    added: Mapping[int, AddedToken]
    """by id"""

    @property
    def special(self) -> list[AddedToken]:
        """All special tokens, each once."""
        found: dict[str, AddedToken] = {}
        for token in (*self.named.values(), *self.extra):
            found.setdefault(token.content, token)
        return list(found.values())

    def flag(self, name: str) -> bool:
        """A setting that is on or off."""
        return bool(self.values.get(name, False))


def read_settings(files: Mapping[str, bytes], family: Family | None, name: str) -> Settings:
    """From the files of a folder by name; what would change ids and is not supported is refused."""
    values = json_object(files, TOKENIZER_CONFIG, name) if TOKENIZER_CONFIG in files else {}
    if family is None:
        raise ModelFolderError(f"{name}: expected {TOKENIZER_CONFIG} to name a tokenizer_class, found none.")
    where = f"{name}, {TOKENIZER_CONFIG}"
    if values.get("auto_map"):
        raise ModelFolderError(f"{where}: auto_map asks for code that comes with the model, which is never run.")
    if values.get("do_lower_case"):
        raise ModelFolderError(f"{where}: do_lower_case true is not supported; expected false, or none.")
    if values.get("sp_model_kwargs"):
        raise ModelFolderError(f"{where}: sp_model_kwargs {values['sp_model_kwargs']} is not supported; expected none.")
    told: dict[str, Any] = {**_DEFAULTS[family], **{key: value for key, value in values.items() if _is_token(key)}}
    extra = values.get("extra_special_tokens") or values.get("additional_special_tokens") or []
    added: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in values:
        for id, token in values["added_tokens_decoder"].items():
            added[int(id)] = _token(token, where, special=False)
    else:
        if SPECIAL_TOKENS in files:
            mapped = json_object(files, SPECIAL_TOKENS, name)
            extra = mapped.get("extra_special_tokens") or mapped.get("additional_special_tokens") or extra
            told.update({key: value for key, value in mapped.items() if _is_token(key)})
        if ADDED_TOKENS in files:
            specials = {_token(value, where).content for value in (*told.values(), *extra) if value is not None}
            for content, id in json_object(files, ADDED_TOKENS, name).items():
                special = content in specials
                added[int(id)] = AddedToken(content, special=special, normalized=not special)
    if isinstance(extra, dict):
        told, extra = {**told, **extra}, []
    by_content = {token.content: token for token in added.values()}
    named = {key: _token(value, where) for key, value in told.items() if value is not None}
    ordered = [*(key for key in _ORDER if key in named), *(key for key in named if key not in _ORDER)]
    return Settings(
        family,
        values,
        {key: by_content.get(named[key].content, named[key]) for key in ordered},
        tuple(_token(value, where) for value in extra),
        dict(sorted(added.items())),
    )


def named_family(files: Mapping[str, bytes], name: str) -> Family | None:
    """The family by the class that the tokenizer or the model names, else by the model's type; None: nothing said."""
    model = json_object(files, "config.json", name) if "config.json" in files else {}
    own = json_object(files, TOKENIZER_CONFIG, name) if TOKENIZER_CONFIG in files else {}
    for values, file in ((own, TOKENIZER_CONFIG), (model, "config.json")):
        if named := values.get("tokenizer_class"):
            found = CLASSES.get(str(named).removesuffix("Fast"))
            if found is None:
                raise ModelFolderError(
                    f"{name}, {file}: tokenizer_class expects one of {', '.join(CLASSES)} (or their Fast forms), "
                    f"found {named!r}."
                )
            return found
    return MODEL_TYPES.get(str(model.get("model_type")))


def json_object(files: Mapping[str, bytes], file: str, name: str) -> dict[str, Any]:
    """A file that holds a JSON object."""
    try:
        found = json.loads(files[file].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{name}, {file}: expected JSON, found something else ({error}).") from None
    if not isinstance(found, dict):
        raise ModelFolderError(f"{name}, {file}: expected a JSON object, found {type(found).__name__}.")
    return found


def _is_token(key: str) -> bool:
    return key.endswith("_token") and key not in ("add_bos_token", "add_eos_token")


def _token(value: Any, where: str, special: bool = True) -> AddedToken:
    if isinstance(value, str):
        return AddedToken(value, special)
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        flags = {key: bool(value[key]) for key in ("lstrip", "rstrip", "single_word", "normalized") if key in value}
        return AddedToken(value["content"], bool(value.get("special", special)) or special, **flags)
    raise ModelFolderError(f"{where}: expected a token's text or an object with its content, found {value!r}.")
