"""Ids agree with Hugging Face's own tokenizers, both ways, for every family; and one file holds all that is needed."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import InputError, ModelFolderError, OptionError
from longstride.text.hf_tokenizer import HFTokenizer, HFTokenizers, read_hf_tokenizers
from longstride.text.hf_tokenizer.languages import M2M100
from longstride.text.tokenizer import load_tokenizer
from tests.text import hf_folders
from tests.text.hf_folders import FAMILIES, SPECIAL_TEXTS, WORDS, made_lines

transformers = pytest.importorskip("transformers")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in FAMILIES},
    "marian separate": ("marian", {"separate": True}),
    "marian cleaned up": ("marian", {"clean_up_tokenization_spaces": True}),
    "marian whole specials": ("marian", {"split_special_tokens": True}),
    "m2m100 listed": ("m2m100", {"additional_special_tokens": [f"__{code}__" for code in M2M100["m2m100"].split()]}),
    "m2m100 wmt21": ("m2m100", {"language_codes": "wmt21"}),
    "bart files": ("bart", {"whole": False}),
    "bart prefix space": ("bart", {"whole": False, "add_prefix_space": True}),
    "bart whole prefix space": ("bart", {"add_prefix_space": True}),
    "t5 cleaned up": ("t5", {"clean_up_tokenization_spaces": True}),
    "t5 whole specials": ("t5", {"split_special_tokens": True}),
    "nllb legacy": ("nllb", {"legacy_behaviour": True, "src_lang": "deu_Latn", "tgt_lang": "eng_Latn"}),
    "mbart languages": ("mbart", {"src_lang": "de_DE", "tgt_lang": "ro_RO"}),
}
SPACES = ["", " ", "  ", "\t", "\n", "\u00a0", "\u2028", "\u200b", "\u200d", "▁", "\0", "\ufeff"]
texts = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from([*WORDS, *SPACES, *SPECIAL_TEXTS, "ｆｕｌｌ", "e\u0301", "🏳️‍🌈"]), max_size=8).flatmap(
        lambda words: st.sampled_from(["", " ", "  "]).map(lambda space: space.join(words))
    ),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Theirs and ours of one folder, made once per module."""

    @cache
    def found(variant: str) -> tuple[Any, HFTokenizers, Path]:
        family, options = VARIANTS[variant]
        folder = FAMILIES[family](tmp_path_factory.mktemp("hf") / "folder", **options)
        return theirs_of(folder), read_hf_tokenizers(folder), folder

    return found


def theirs_of(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sacremoses is recommended
        return transformers.AutoTokenizer.from_pretrained(folder)


def theirs_decode(theirs: Any, ids: list[int], ours: HFTokenizer) -> str:
    """Transformers 5 leaves M2M100's languages in the text unless the folder lists them; we never do."""
    if ours.family == "m2m100":
        ids = [id for id in ids if id not in ours.languages.values()]
    return str(theirs.decode(ids, skip_special_tokens=True))


def check_text(theirs: Any, ours: HFTokenizers, text: str) -> None:
    ids = theirs(text)["input_ids"]
    assert ours.source.encode(text) == ids
    if not ours.target.origin.separate:  # else these ids are none of the target's
        assert ours.target.decode(ids) == theirs_decode(theirs, ids, ours.target)
    if getattr(theirs, "tgt_lang", None) or ours.target.family in ("marian", "bart", "t5", "pegasus"):
        labels = theirs(text_target=text)["input_ids"]
        assert ours.target.encode(text) == labels
        assert ours.target.decode(labels) == theirs_decode(theirs, labels, ours.target)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_are_theirs_for_any_text(pair: Any, variant: str) -> None:
    theirs, ours, _ = pair(variant)

    @settings(max_examples=30)
    @given(texts)
    def check(text: str) -> None:
        check_text(theirs, ours, text)

    check()
    for text in ["", *SPACES, *SPECIAL_TEXTS, *made_lines(20, seed=7)]:
        check_text(theirs, ours, text)
    lines = ["", *made_lines(20, seed=8), ">>deu<< " + WORDS[0], " ".join(SPECIAL_TEXTS)]
    assert ours.source.encode_many(lines) == theirs(lines)["input_ids"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_texts_are_theirs_for_any_ids(pair: Any, variant: str) -> None:
    theirs, ours, _ = pair(variant)
    known = sorted(ours.target.origin.engines[1].tokens)

    @settings(max_examples=30)
    @given(st.lists(st.sampled_from(known), max_size=12))
    def check(ids: list[int]) -> None:
        assert ours.target.decode(ids) == theirs_decode(theirs, ids, ours.target)

    check()
    assert ours.target.pieces(known) == theirs.convert_ids_to_tokens(known)
    assert ours.target.decode_many([]) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_special_ids_are_theirs(pair: Any, variant: str) -> None:
    theirs, ours, _ = pair(variant)
    for side in (ours.source, ours.target):
        assert (side.special.pad, side.special.unk, side.special.eos) == (
            theirs.pad_token_id,
            theirs.unk_token_id,
            theirs.eos_token_id,
        )
        assert side.special.mask == getattr(theirs, "mask_token_id", None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_file_holds_it_all(pair: Any, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours, folder = pair(variant)
    lines = made_lines(10, seed=9)
    ours.source.save(tmp_path / "source.model")
    ours.target.save(tmp_path / "target.model")
    monkeypatch.setitem(sys.modules, "transformers", None)
    shared = ours.source.sha256 == ours.target.sha256
    assert shared == (variant != "marian separate")
    source = load_tokenizer(tmp_path / "source.model")
    target = source.as_target() if shared else load_tokenizer(tmp_path / "target.model").as_target()
    for again, side in (
        (source, ours.source),
        (target, ours.target),
        (pickle.loads(pickle.dumps(target)), ours.target),
    ):
        assert isinstance(again, HFTokenizer)
        assert (again.sha256, again.size, again.special) == (side.sha256, side.size, side.special)
        assert (again.forced_first, again.languages) == (side.forced_first, side.languages)
        assert again.encode_many(lines) == side.encode_many(lines)
        assert again.decode_many(side.encode_many(lines)) == side.decode_many(side.encode_many(lines))
    again.write_files(tmp_path)
    for name in again.origin.files:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert {path.name for path in folder.iterdir()} == set(again.origin.files)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_are_cut_and_ended_as_models_want_them(pair: Any, variant: str) -> None:
    theirs, ours, _ = pair(variant)
    line = " ".join(WORDS[:20])
    row = ours.source.encode(line)
    assert ours.source.ended(row, len(row)) == row
    for longest in (3, 4, len(row) - 1):
        assert ours.source.ended(row, longest) == theirs(line, truncation=True, max_length=longest)["input_ids"]
    if row[-1] == ours.source.special.eos:
        assert ours.source.encode_for_batches([line]) == [row[:-1]]
    else:
        with pytest.raises(ModelFolderError, match="rows end in"):
            ours.source.encode_for_batches([line])


def test_languages_are_set_as_theirs(pair: Any) -> None:
    line = WORDS[0]
    for family, source, target in (
        ("nllb", "fra_Latn", "deu_Latn"),
        ("nllb legacy", "fra_Latn", "deu_Latn"),
        ("m2m100", "fr", "de"),
        ("m2m100 wmt21", "cs", "de"),
        ("mbart", "fr_XX", "ro_RO"),
        ("mbart50", "fr_XX", "sl_SI"),
    ):
        theirs, ours, folder = pair(family)
        theirs = theirs_of(folder)
        theirs.src_lang, theirs.tgt_lang = source, target
        for made in (
            ours.source.with_languages(source, target),
            read_hf_tokenizers(folder, source, target).source,
            HFTokenizer.from_bytes(ours.source.with_languages(source, target).serialized),
        ):
            assert made.encode(line) == theirs(line)["input_ids"]
            assert made.as_target().encode(line) == theirs(text_target=line)["input_ids"]
        assert ours.source.encode(line) != made.encode(line)  # a copy, not a change
        language = theirs.convert_tokens_to_ids(f"__{target}__" if family.startswith("m2m100") else target)
        assert made.languages[target] == language
        assert made.origin.engines[0] is not None
        # mBART-25 takes the target's language for its decoder's first input, the others force it.
        assert (made.start if family == "mbart" else made.forced_first) == language
        assert (made.forced_first if family == "mbart" else made.start) is None


def test_marian_marks_its_source_with_the_target_language(pair: Any) -> None:
    theirs, ours, _ = pair("marian")
    made = ours.source.with_languages(target="fra")
    for line in ["", *made_lines(10, seed=3)]:
        assert made.encode(line) == theirs(f">>fra<< {line}")["input_ids"]
        assert made.encode(f">>deu<< {line}") == theirs(f">>deu<< {line}")["input_ids"]
    assert made.as_target().encode("x") == ours.target.encode("x")
    assert made.forced_first is None
    assert ours.languages == {"deu": made.languages["deu"], "fra": made.languages["fra"]}
    with pytest.raises(OptionError, match="source_lang expects a model with language tokens"):
        ours.source.with_languages(source="deu")


@pytest.mark.parametrize(
    ("family", "code", "near"),
    [("nllb", "en", "eng_Latn"), ("m2m100", "en_XX", "en"), ("mbart50", "de_XX", "de_DE"), ("marian", "de", "deu")],
)
def test_an_unknown_language_is_refused_with_those_near_it(pair: Any, family: str, code: str, near: str) -> None:
    _, ours, folder = pair(family)
    with pytest.raises(OptionError, match=rf"target_lang expects .* found '{code}'; the nearest are .*\b{near}\b"):
        ours.source.with_languages(target=code)
    with pytest.raises(OptionError, match="target_lang expects"):
        read_hf_tokenizers(folder, target_lang=code)


@pytest.mark.parametrize("family", ["bart", "t5", "pegasus", "marian separate"])
def test_a_family_without_languages_takes_none(pair: Any, family: str) -> None:
    _, ours, folder = pair(family)
    assert ours.languages == {}
    with pytest.raises(OptionError, match="target_lang expects a model with language tokens, found none in"):
        read_hf_tokenizers(folder, target_lang="de")


def test_added_tokens_of_older_folders(tmp_path: Path) -> None:
    """special_tokens_map.json and added_tokens.json, which transformers 4 wrote before 4.34."""
    folder = hf_folders.m2m100(tmp_path / "m2m100")
    tokens = [f"__{code}__" for code in M2M100["m2m100"].split()]
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "M2M100Tokenizer", "tgt_lang": "de"}')
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": tokens}))
    theirs, ours = theirs_of(folder), read_hf_tokenizers(folder)
    for line in ["__de__ a", "a __zu__"]:
        check_text(theirs, ours, line)
    folder = hf_folders.marian(tmp_path / "marian")
    size = len(json.loads((folder / "vocab.json").read_bytes()))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": "</s>", "unk_token": "<unk>", "pad_token": {"content": "<pad>", "lstrip": True}})
    )
    (folder / "added_tokens.json").write_text(json.dumps({"[X]": size, "[XY]": size + 1}))
    theirs, ours = theirs_of(folder), read_hf_tokenizers(folder)
    for line in ["a [X] b", "[XY][X]", "the [XYZ] [X", "a  <pad> b", "a</s>"]:
        check_text(theirs, ours, line)
    assert ours.source.size == size + 2


def test_added_tokens_of_a_tokenizer_json(tmp_path: Path) -> None:
    folder = hf_folders.t5(tmp_path / "t5")
    theirs = theirs_of(folder)
    theirs.add_tokens(["[X]", transformers.AddedToken("[Y]", lstrip=True, rstrip=True)])
    theirs.save_pretrained(folder)
    theirs, ours = theirs_of(folder), read_hf_tokenizers(folder)
    for line in ["a [X] b", "[Y]  [X]", "the [Y]house", "<extra_id_1>a"]:
        check_text(theirs, ours, line)


def test_a_bare_sentencepiece_model_is_converted(tmp_path: Path) -> None:
    """What was made goes into the one file, and is no original to be written back."""
    for family, file, ids in (
        ("T5Tokenizer", "spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
        ("MBart50Tokenizer", "sentencepiece.bpe.model", {}),
    ):
        folder = tmp_path / family
        folder.mkdir()
        (folder / file).write_bytes(hf_folders.spm(made_lines(), **ids))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": family}))
        theirs = theirs_of(folder)
        ours = read_hf_tokenizers(folder, convert=lambda _: theirs.backend_tokenizer.to_str().encode())  # noqa: B023
        for line in ["", *SPECIAL_TEXTS, *made_lines(10, seed=4)]:
            check_text(theirs, ours, line)
        again = HFTokenizer.from_bytes(ours.source.serialized)
        assert again.encode_many(made_lines(10)) == ours.source.encode_many(made_lines(10))
        again.write_files(tmp_path)
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()
        assert not (tmp_path / "tokenizer.json").exists()


def test_any_tokenizer_json_goes_by_its_post_processor(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "</s>", "<unk>", "<s>", "[A]", *"abc"]
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    template = processors.TemplateProcessing(single="[A] $A </s> [A]", special_tokens=[("[A]", 4), ("</s>", 1)])
    byte_level = processors.ByteLevel(trim_offsets=False)
    for place, processor in enumerate(
        [
            None,
            byte_level,
            template,
            processors.RobertaProcessing(("</s>", 1), ("<s>", 3)),
            processors.BertProcessing(("</s>", 1), ("<s>", 3)),
            processors.Sequence([byte_level, template]),
        ]
    ):
        if processor is not None:
            tokenizer.post_processor = processor
        folder = tmp_path / str(place)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
        theirs, ours = theirs_of(folder), read_hf_tokenizers(folder)
        assert ours.source.family == "tokenizers"
        for line in ("", "a b", "c </s> x", "[A]"):
            assert ours.source.encode(line) == theirs(line)["input_ids"]
            assert ours.target.decode(theirs(line)["input_ids"]) == theirs.decode(
                theirs(line)["input_ids"], skip_special_tokens=True
            )


def test_a_vocabulary_is_as_large_as_the_model(tmp_path: Path) -> None:
    folder = hf_folders.m2m100(tmp_path / "m2m100")
    own = read_hf_tokenizers(folder).source.size
    (folder / "config.json").write_text(json.dumps({"model_type": "m2m_100", "vocab_size": own + 8}))
    ours = read_hf_tokenizers(folder).source
    assert ours.size == own + 8
    assert len(set(ours.pieces(range(ours.size)))) == ours.size
    assert ours.decode([own + 7]) == "<unk>"  # as theirs
    (folder / "config.json").write_text(json.dumps({"model_type": "m2m_100", "vocab_size": own - 1}))
    with pytest.raises(ModelFolderError, match=f"expects {own - 1} ids, found {own} in its tokenizer"):
        read_hf_tokenizers(folder)


def test_a_folder_without_a_tokenizer_config_goes_by_its_files(tmp_path: Path) -> None:
    for family in ("marian", "t5"):
        folder = FAMILIES[family](tmp_path / family)
        ours = read_hf_tokenizers(folder).source
        (folder / "tokenizer_config.json").unlink()
        if family == "t5":
            (folder / "config.json").write_text('{"model_type": "t5"}')
        assert read_hf_tokenizers(folder).source.encode(WORDS[0]) == ours.encode(WORDS[0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"auto_map": {"AutoTokenizer": ["tok.py", None]}}, "auto_map asks for code"),
        ({"tokenizer_class": "ByT5Tokenizer"}, "tokenizer_class expects one of .* found 'ByT5Tokenizer'"),
        ({"do_lower_case": True}, "do_lower_case true is not supported"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs .* is not supported"),
        ({"added_tokens_decoder": {"7": {"content": "[X]", "single_word": True}}}, "single_word true"),
        ({"added_tokens_decoder": {"7": 3}}, "expected a token's text"),
        ({"added_tokens_decoder": {"x": "a"}}, "expected a tokenizer's files, found ValueError"),
        ({"added_tokens_decoder": 3}, "expected a tokenizer's files, found AttributeError"),
        ({"pad_token": None}, "expected a tokenizer with a pad_token, found none"),
        ({"separate_vocabs": True}, r"expected target_vocab.json, found no such file"),
    ],
)
def test_what_would_change_ids_is_refused_by_name(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    folder = hf_folders.marian(tmp_path / "marian")
    told = json.loads((folder / "tokenizer_config.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, **settings}))
    with pytest.raises(ModelFolderError, match=said):
        read_hf_tokenizers(folder)


def test_files_that_are_missing_or_broken_are_refused_by_name(tmp_path: Path) -> None:
    for family, file in (("marian", "source.spm"), ("marian", "vocab.json"), ("m2m100", "vocab.json")):
        folder = FAMILIES[family](tmp_path / f"{family}-{file}")
        (folder / file).write_bytes(b"broken")
        with pytest.raises(ModelFolderError, match=file):
            read_hf_tokenizers(folder)
        (folder / file).unlink()
        with pytest.raises(ModelFolderError, match=f"found no {file}"):
            read_hf_tokenizers(folder)
    folder = hf_folders.t5(tmp_path / "t5")
    told = json.loads((folder / "tokenizer.json").read_bytes())
    told["model"]["unk_id"] = None
    (folder / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(ModelFolderError, match="cannot read every text"):
        read_hf_tokenizers(folder).source.encode("\u16a0")
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelFolderError, match=r"tokenizer.json: the package tokenizers .* could not read it"):
        read_hf_tokenizers(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFolderError, match=r"expected tokenizer.json, found no such file"):
        read_hf_tokenizers(folder)
    (folder / "spiece.model").write_bytes(hf_folders.spm(made_lines()))
    with pytest.raises(ModelFolderError, match=r"save_pretrained\(FOLDER\) makes one"):
        read_hf_tokenizers(folder)
    with pytest.raises(ModelFolderError, match="expected a tokenizer"):
        read_hf_tokenizers(tmp_path)
    with pytest.raises(ModelFolderError, match="expected a Hugging Face folder, found none"):
        read_hf_tokenizers(tmp_path / "none")


def test_without_the_library_the_error_says_what_to_install(
    pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for family in ("marian", "m2m100", "t5"):
        pair(family)[1].source.save(tmp_path / f"{family}.model")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    load_tokenizer(tmp_path / "marian.model")
    load_tokenizer(tmp_path / "m2m100.model")
    with pytest.raises(OptionError, match=r"pip install 'longstride\[tokenizers\]'"):
        load_tokenizer(tmp_path / "t5.model")


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_half_a_surrogate_pair_is_no_text(pair: Any, family: str) -> None:
    with pytest.raises(InputError, match="lone surrogate at character 2"):
        pair(family)[1].source.encode("a\ud800")


def test_a_tampered_file_is_refused(pair: Any, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    pair("marian")[1].source.save(path)
    whole = path.read_bytes()
    header, values = whole.split(b"\n", 1)
    told = json.loads(values)
    broken = [
        whole[: len(whole) // 2],
        header + b"\n[]",
        *(
            header + b"\n" + json.dumps({**told, **changed}).encode()
            for changed in (
                {"family": "bert"},
                {"files": {"../x": {"text": ""}}},
                {"files": {}},
                {"sizes": [1]},
                {"target_lang": "xx"},
                {"source_lang": ["deu"]},
                {"files": {**told["files"], "source.spm": {"base64": "?"}}},
            )
        ),
    ]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(ModelFolderError, match=r"tokenizer\.model"):
            load_tokenizer(path)
