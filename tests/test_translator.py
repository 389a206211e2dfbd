"""The translator: order, empty lines, batches and options, from Python."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import longstride
from longstride.cli.options import model_path
from longstride.contract import Decoded, InputError, ModelFolderError, OptionError, Source
from longstride.runtime.choosing import check_device, fastest_batch, fastest_runtime, make_runner
from longstride.runtime.names import PRECISIONS, RUNTIMES
from longstride.tasks.toys import SYMBOLS
from longstride.text.sentences import alternating
from longstride.text.tokenizer import WordsTokenizer
from longstride.translator import _SENTENCE, Translation, Translator
from tests.folders import LONGEST, edit_config, words, write_folder

LINE = st.lists(st.sampled_from([*SYMBOLS, "unknown"]), max_size=8).map(" ".join)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = write_folder(tmp_path_factory.mktemp("translator") / "model")
    return longstride.load(folder, device="cpu", precision="fp64")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, max_size=12), batch=st.integers(1, 5), decoder=st.sampled_from(["greedy", "beam"]))
def test_many_lines_are_each_line_alone(translator: Translator, lines: list[str], batch: int, decoder: str) -> None:
    together = translator.translate(lines, decoder, batch=batch, max_length=6)
    assert [one.text for one in together] == [translator.translate(line, decoder, max_length=6) for line in lines]
    assert all(str(one) == one.text for one in together)


SENTENCE = st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=5).map(lambda some: " ".join(some).upper() + "!")
GAPS = st.sampled_from([" ", "  ", "\n", " \n\n ", "\t"])


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(st.tuples(GAPS, SENTENCE), max_size=4), max_size=3),
    end=st.sampled_from(["", " ", "\n"]),
    decoder=st.sampled_from(["greedy", "beam"]),
)
def test_a_text_of_several_sentences_is_each_of_them_with_the_space_around_it(
    translator: Translator, texts: list[list[tuple[str, str]]], end: str, decoder: str
) -> None:
    given = ["".join(gap + line for gap, line in pairs) + end for pairs in texts]
    found = translator.translate(given, decoder, whole=False, trace=True, max_length=4)
    for pairs, one in zip(texts, found, strict=True):
        alone = translator.translate([line for _, line in pairs], decoder, max_length=4)
        assert one.text == "".join(gap + each.text for (gap, _), each in zip(pairs, alone, strict=True)) + end
        assert one.tokens == tuple(token for each in alone for token in each.tokens)


@given(st.text(st.sampled_from("ab .!?…。\n\tA") | st.characters(codec="utf-8"), max_size=12))
def test_a_sentence_that_is_not_looked_at_would_not_be_split(text: str) -> None:
    if _SENTENCE.fullmatch(text):
        assert alternating(text, lambda line: True) == [text]


def test_the_folder_says_whether_texts_are_split(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    text, options = "A B C! A B!  D", {"max_length": 4}
    lines = longstride.load(folder, device="cpu")
    edit_config(folder, "sentences", value=True)
    sentences = longstride.load(folder, device="cpu")
    split = [one.text for one in lines.translate(["A B C!", "A B!", "D"], **options)]
    assert sentences.translate(text, **options) == f"{split[0]} {split[1]}  {split[2]}"
    assert sentences.translate(text, whole=True, **options) == lines.translate(text, **options)
    assert lines.translate(text, whole=False, **options) == sentences.translate(text, **options)
    # drafts are of lines
    assert sentences.translate([text], drafts=["a"], **options)[0].text == lines.translate(text, "greedy", **options)


def test_as_many_sentences_side_by_side_as_is_fastest_unless_told(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the runtime that carries them out; a number that is named is obeyed."""
    assert [fastest_batch(name) for name in ("native", "onnx", "cuda-graph", "eager")] == [16, 16, 128, 32]
    seen: list[int | None] = []
    decoder = type(translator.decoder("greedy")[0])
    decode = decoder.decode

    def watched(self: Any, source: Source, limits: Any, capacity: int, **told: Any) -> Decoded:
        seen.append(capacity)
        return decode(self, source, limits, capacity, **told)

    monkeypatch.setattr(decoder, "decode", watched)
    translator.translate(["a b", "c"], "greedy", max_length=3)
    translator.translate(["a b", "c"], "greedy", max_length=3, batch=7)
    assert seen == [32, 7]
    monkeypatch.delitem(translator.__dict__, "batch")
    monkeypatch.setattr(translator, "runner", SimpleNamespace(name="cuda-graph"))
    assert translator.batch == 128
    del translator.batch


def test_what_is_too_long_for_the_model_is_read_in_parts(translator: Translator) -> None:
    line, told = " ".join("abcdef" * 8), list[str]()
    found = translator.translate([line], whole=False, warn=told.append, max_length=4)
    assert not told
    assert len(found[0].tokens) > 4, "several parts"
    translator.translate([line], whole=True, warn=told.append, max_length=4)
    assert len(told) == 1


def test_parts_of_one_line_are_decoded_side_by_side(translator: Translator) -> None:
    line, seen = " ".join("abcdef" * 500), list[Decoded]()
    translator.translate([line], "greedy", whole=False, watch=seen.append, max_length=4)
    (alone,) = seen
    assert len(alone.hypotheses) > 100
    assert alone.iterations < len(alone.hypotheses) / 4, "of four tokens each: by itself each takes four"


@cache
def seen_by_nobody() -> list[str]:
    """Looked for by the test that asks: among all characters that takes a while."""
    kinds = ("Cc", "Cf", "Zs", "Zl", "Zp")
    every = map(chr, range(sys.maxunicode + 1))
    return [sign for sign in every if unicodedata.category(sign) in kinds and sign not in " \n"]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(LINE, min_size=1, max_size=4), max_size=3),
    ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=3, max_size=3),
    decoder=st.sampled_from(["greedy", "beam"]),
)
def test_a_text_of_several_lines_is_each_line_with_its_break(
    translator: Translator, texts: list[list[str]], ends: list[str], decoder: str
) -> None:
    whole = [
        "".join(line + end for line, end in zip(lines, [*ends, ""][-len(lines) :], strict=True)) for lines in texts
    ]
    alone = [translator.translate(lines, decoder, max_length=4) for lines in texts]
    found = translator.translate(whole, decoder, trace=True, max_length=4)
    assert len(found) == len(texts)
    for one, lines in zip(found, alone, strict=True):
        breaks = [*ends, ""][-len(lines) :]
        assert one.text == "".join(line.text + end for line, end in zip(lines, breaks, strict=True))
        assert one.tokens == tuple(token for line in lines for token in line.tokens)
        assert [hypothesis.tokens for hypothesis in one.n_best[:1]] == [list(one.tokens)][: len(one.n_best)]
        if one.trace is not None:
            assert tuple(one.trace.replay()) == one.tokens
    assert [translator.translate(text, decoder, max_length=4) for text in whole] == [one.text for one in found]


@given(sign=st.deferred(lambda: st.sampled_from(seen_by_nobody())))
def test_no_character_that_nobody_sees_takes_away_what_follows(translator: Translator, sign: str) -> None:
    between = "" if unicodedata.category(sign) == "Cf" else " "
    assert translator.encode([f"a b{sign} c{sign}"]) == translator.encode([f"a b{between} c{between}"])
    assert translator.encode([f"a{sign if between else sign + ' '}b"]) == translator.encode(["a b"])


def test_an_emoji_of_several_signs_stays_one(translator: Translator) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert translator.readable(f"\u200da {family}\u200d b\u200d") == f"a {family} b"
    assert translator.readable(f"{family}\u200d") == family


def test_letters_with_their_accents_apart_are_read_as_one(tmp_path: Path) -> None:
    vocabulary = WordsTokenizer([*words().pieces(range(words().size)), "caf\xe9", "i\u0308"])
    translator = longstride.load(write_folder(tmp_path / "model", tokenizer=vocabulary), device="cpu")
    assert translator.readable("cafe\u0301\u2028a") == "caf\xe9 a"
    assert translator.encode(["cafe\u0301"]) == translator.encode(["caf\xe9"])
    assert translator.readable("i\u0308") == "i\u0308"  # as this vocabulary has it


def test_a_character_of_the_vocabulary_is_read_as_it_is(tmp_path: Path) -> None:
    vocabulary = WordsTokenizer([*words().pieces(range(words().size)), "10\xa0km"])
    translator = longstride.load(write_folder(tmp_path / "model", tokenizer=vocabulary), device="cpu")
    assert translator.readable("10\xa0km\u2028a") == "10\xa0km a"
    assert vocabulary.size - 1 in translator.encode(["10\xa0km"])[0]


def test_a_line_gives_a_line_and_a_list_a_list(translator: Translator) -> None:
    assert isinstance(translator.translate("a b"), str)
    assert [type(one).__name__ for one in translator.translate(["a b", ""])] == ["Translation", "Translation"]
    assert translator.translate([]) == []
    assert translator.translate("") == ""


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_traces_replay_to_tokens(translator: Translator, decoder: str) -> None:
    for one in translator.translate(["a b c", "d", "t s r"], decoder, trace=True, batch=2):
        assert one.trace is not None
        assert tuple(one.trace.replay()) == one.tokens
        assert one.trace.committed == len(one.tokens) + 1
    assert translator.translate(["a"], decoder)[0].trace is None


def test_n_best_come_best_first(translator: Translator) -> None:
    best = translator.translate(["a b c"], "beam", width=4, n_best=3)[0]
    scores = [hypothesis.score for hypothesis in best.n_best]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert best.score == scores[0]


def test_whoever_watches_sees_every_sentence_once(translator: Translator) -> None:
    seen: list[Decoded] = []
    translator.translate(["a", "", "b c", "d e f"], watch=seen.append)
    assert sum(len(decoded.hypotheses) for decoded in seen) == 3
    assert all(decoded.calls > 0 for decoded in seen)


def test_long_lines_are_cut_and_told(translator: Translator) -> None:
    long = " ".join("ab" * LONGEST)
    with pytest.warns(UserWarning, match=rf"line 1 has {2 * LONGEST} tokens and was cut .* {LONGEST - 1}\."):
        cut = translator.translate(long)
    assert cut == translator.translate(" ".join(long.split()[: LONGEST - 1]))
    said: list[str] = []
    translator.translate(["a", long], warn=said.append, first_line=11)
    translator.translate(["a\nb\nc", f"a\n{long}"], warn=said.append)  # texts are counted, not their lines
    assert [message.split(" has ")[0] for message in said] == ["line 12", "line 2"]


def test_characters_that_are_written_out_count_as_what_they_become(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By tokenizers that read NFKC: one sign of Arabic is 18 there; and these put tokens around a text."""

    def encode_many(texts: list[str], threads: int) -> list[list[int]]:
        return [[0] * (len(unicodedata.normalize("NFKC", text).encode()) + 5) for text in texts]

    monkeypatch.setattr(translator, "source_tokenizer", SimpleNamespace(complete=True, encode_many=encode_many))
    assert not translator.fits("\ufdfa" * (LONGEST // 4 - 1))
    assert not translator.fits("\U0001f600" * ((LONGEST - 1) // 4))
    assert translator.fits("a")


def test_outputs_never_outgrow_the_positions(translator: Translator) -> None:
    full = translator.translate(["a b c d e f"], max_length=1000, max_extra=1000, min_length=LONGEST - 1)
    assert len(full[0].tokens) == LONGEST - 1


@pytest.mark.parametrize("whole", [None, False])
@pytest.mark.parametrize("decoder", [None, "greedy", "beam"])
def test_a_single_text_is_a_str_and_with_a_trace_a_result(
    translator: Translator, decoder: str | None, whole: bool | None
) -> None:
    text = "A B c. D E!\na b"
    plain = translator.translate(text, decoder, whole=whole, max_length=4)
    traced = translator.translate(text, decoder, whole=whole, trace=True, max_length=4)
    [listed] = translator.translate([text], decoder, whole=whole, trace=True, max_length=4)
    assert type(plain) is str
    assert (type(traced), traced) == (Translation, listed)
    assert (str(traced), traced.decoder) == (plain, decoder or "greedy")
    assert traced.trace is not None
    assert tuple(traced.trace.replay()) == traced.tokens
    [untraced] = translator.translate([text], decoder, whole=whole, max_length=4)
    assert (untraced.trace, untraced.decoder) == (None, traced.decoder)
    nothing = translator.translate("", decoder, trace=True)
    assert (nothing.text, nothing.trace, nothing.decoder) == ("", None, "")


def test_one_set_of_names_for_options_and_limits(translator: Translator) -> None:
    decoder, limits = translator.decoder("beam", width="3", max_length=5)
    assert "width:3" in decoder.signature
    assert limits.max_length == 5
    with pytest.raises(OptionError, match=r"has no option 'breadth'; its options are .*width.*max_length"):
        translator.decoder("beam", breadth=3)
    with pytest.raises(OptionError, match="has no option 'name'"):
        translator.decoder("beam", name=3)
    with pytest.raises(OptionError, match=r"has no decoder 'beem' \(did you mean beam\?\); it has greedy, beam"):
        translator.translate("a", "beem")
    with pytest.raises(OptionError, match="batch expects a whole number of 1 or more, found 0"):
        translator.translate("a", batch=0)


HUB = (
    "; models are never downloaded here. From the Hugging Face Hub: `hf download {0} --local-dir {1}`, then "
    "`longstride import {1} -o {1}-longstride`."
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Helsinki-NLP/opus-mt-en-de", HUB.format("Helsinki-NLP/opus-mt-en-de", "opus-mt-en-de")),
        ("https://huggingface.co/facebook/bart-base", HUB.format("facebook/bart-base", "bart-base")),
        ("nope", HUB.format("nope", "nope")),
        ("model/nope", "."),
        ("bundeld", " (did you mean bundled?)."),
        ("./modle", " (did you mean model?)."),
    ],
)
def test_a_folder_that_is_not_there_is_told_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.chdir(write_folder(tmp_path / "model").parent)
    for refusing in (longstride.load, model_path):
        with pytest.raises(ModelFolderError) as refused:
            refusing(name)
        assert str(refused.value).startswith(f"{Path(name)}: expected a model folder, found nothing{told}")


def test_a_translator_says_what_it_is(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    shown = repr(longstride.load(folder, runtime="eager", device="cpu"))
    assert shown == f"<Translator {str(folder)!r}, carried out by eager in fp32, decoders: greedy, beam>"


def test_help_names_what_there_is_to_choose_from() -> None:
    assert longstride.load.__doc__ is not None
    for name in (*RUNTIMES, *PRECISIONS, "cpu", "cuda"):
        assert re.search(rf"\b{name}\b", longstride.load.__doc__), name
    assert longstride.__doc__ is not None
    for name in longstride.__all__:
        assert name in longstride.__doc__ or name in ("Translation", "__version__"), name


@pytest.mark.parametrize(("given", "told"), [((None, None), "load"), ((5, None), "load"), (("bundled", 5), "drafter")])
def test_what_is_no_path_is_refused(given: tuple[Any, Any], told: str) -> None:
    with pytest.raises(ModelFolderError, match=rf"^{told} expects the path of a model folder, found (None|5)\.$"):
        longstride.load(given[0], drafter=given[1])


def test_what_is_no_model_of_transformers_is_refused() -> None:
    with pytest.raises(InputError, match=r"^from_transformers expects a model of transformers, found None\.$"):
        longstride.from_transformers(None, None)


@pytest.mark.parametrize(
    ("decoder", "given", "told"),
    [
        ("greedy", {"batch_size": 2}, "(did you mean batch, an option of translate and not of its decoders?)"),
        ("greedy", {"src_lang": "en"}, "(did you mean source_lang, an option of translate and not of its decoders?)"),
        ("greedy", {"num_beams": 4}, "have width: --decoder beam, in Python decoder='beam')"),
        ("greedy", {"width": 4}, "(the decoders beam, draft-beam, interleaved have width: --decoder beam, in Python"),
        ("beam", {"beam_size": 4}, "(did you mean width?)"),
        ("beam", {"max_new_tokens": 4}, "(did you mean max_length?)"),
        ("greedy", {"max_decoding_length": 4}, "(did you mean max_length?)"),
        ("greedy", {"suffix": 2}, "have suffix: --decoder copy-verify"),
        ("greedy", {"max_lenght": 2}, "(did you mean max_length?)"),
    ],
)
def test_names_of_other_libraries_and_decoders_are_answered_with_where_they_belong(
    translator: Translator, decoder: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(OptionError, match=rf"The decoder {decoder} has no option '{next(iter(given))}' ") as refused:
        translator.translate(["a"], decoder, **given)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "None"),
        (5, "5"),
        (b"a", "b'a'"),
        (["a", None], "None as number 2"),
        (["a", "b", math.nan], "nan as number 3"),
        ([b"a"], "b'a' as number 1"),
        ([["a"]], r"\['a'\] as number 1"),
    ],
)
def test_what_is_no_text_is_refused(translator: Translator, text: Any, found: str) -> None:
    with pytest.raises(InputError, match=rf"^translate expects a text or several, found {found}\.$"):
        translator.translate(text)


def test_one_draft_by_itself_is_refused(translator: Translator) -> None:
    with pytest.raises(OptionError, match=r"^drafts expects a list of one for each text, found 'a b'\.$"):
        translator.translate("a", drafts="a b")


def test_a_decoder_is_made_once_for_the_same_options(translator: Translator) -> None:
    one, limits = translator.decoder("beam", width=2, max_length=5)
    assert translator.decoder("beam", width=2, max_length=5) == (one, limits)
    assert translator.decoder("beam", width=2, max_length=5)[0] is one
    assert translator.decoder("beam", width=3, max_length=5)[0] is not one
    assert translator.decoder("beam", width=2, max_length=6)[1] != limits
    assert translator.decoder("beam", banned=[7])[1].banned == (7,)  # a list has no hash
    with pytest.raises(OptionError, match="width"):
        translator.decoder("beam", width=True)  # which Python holds for 1
    translator.decoder("beam", width=1)
    with pytest.raises(OptionError, match="width"):
        translator.decoder("beam", width=True)


def test_outputs_that_cannot_get_as_long_as_they_must_are_refused(translator: Translator) -> None:
    """Where no word is left and the output may not end yet, greedy search would write padding, and beams nothing."""
    words = [id for id in range(translator.target_tokenizer.size) if id not in (0, 2, 3, 4)]
    refused = r"^min_length expects at most {}, since banned and no_repeat_ngram leave no more words, found {}\.$"
    for decoder in ("greedy", "beam"):
        with pytest.raises(OptionError, match=refused.format(0, 1)):
            translator.translate("a b", decoder, banned=words, min_length=1)
        with pytest.raises(OptionError, match=refused.format(2, 3)):
            translator.translate("a b", decoder, banned=words[2:], min_length=3, no_repeat_ngram=1)
        with pytest.raises(OptionError, match=refused.format(1, 2)):
            translator.translate("a b", decoder, banned=words, min_length=2, forced_first=words[0])
        one, none = {"banned": words[1:], "max_length": 4}, {"banned": words}
        for told, output in (
            ({**one, "min_length": 4}, [words[0]] * 4),
            ({**one, "min_length": 1, "no_repeat_ngram": 1}, words[:1]),
            ({**none, "min_length": 1, "forced_first": words[0]}, words[:1]),
            (none, []),
        ):
            assert translator.translate(["a b"], decoder, **told)[0].tokens == tuple(output)


def test_a_forced_first_token_is_one_of_the_vocabulary(translator: Translator) -> None:
    size = translator.target_tokenizer.size
    with pytest.raises(OptionError, match=f"forced_first expects an id of the model's vocabulary, 0 to {size - 1}, f"):
        translator.decoder("greedy", forced_first=size)
    _, limits = translator.decoder("beam", forced_first=str(size - 1), no_repeat_ngram="2")
    assert (limits.forced_first, limits.no_repeat_ngram) == (size - 1, 2)


def test_defaults_in_the_folder_are_below_what_is_asked(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    edit_config(folder, "decoders", "beam", "defaults", value={"width": 2, "max_length": 7})
    translator = longstride.load(folder, device="cpu")
    decoder, limits = translator.decoder("beam")
    assert "width:2" in decoder.signature
    assert limits.max_length == 7
    assert "width:6" in translator.decoder("beam", width=6)[0].signature


def test_an_ensemble_of_one_model_twice_is_that_model(translator: Translator) -> None:
    decoder, limits = translator.ensemble([translator], width=3)
    single, _ = translator.decoder("beam", width=3)
    source = Source.of(translator.encode(["a b c", "d e"]))
    assert decoder.decode(source, limits).tokens == single.decode(source, limits).tokens


def test_an_ensemble_wants_one_vocabulary(translator: Translator, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", tokenizer=WordsTokenizer([*words()._words, "extra"]))
    with pytest.raises(OptionError, match="one vocabulary"):
        translator.ensemble([longstride.load(other, device="cpu")])


def test_devices_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("auto") == check_device("cuda") == torch.device("cuda:0")
    assert check_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(OptionError, match="cuda:2 was asked for, but PyTorch finds 2 CUDA devices"):
        check_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check_device("auto") == torch.device("cpu")
    for name in ("cuda", "mps", "meta", "tpu", "", "cpu:3"):
        with pytest.raises(OptionError, match="device"):
            check_device(name)
    with pytest.raises(OptionError, match="precision expects auto, fp32, fp16, bf16, fp64 or int8, found 'int3'"):
        make_runner("cpu", "int3")


def test_auto_is_the_fastest_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ways = {precision: fastest_runtime("auto", precision) for precision in ("auto", "fp32", "int8", "fp16", "fp64")}
    assert ways == {"auto": "native", "fp32": "native", "int8": "native", "fp16": "eager", "fp64": "eager"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    ways = {precision: fastest_runtime("auto", precision) for precision in ("auto", "fp32", "int8", "fp16", "fp64")}
    assert ways == {"auto": "cuda-graph", "fp32": "cuda-graph", "int8": "native", "fp16": "cuda-graph", "fp64": "eager"}
    assert fastest_runtime("cpu", "auto") == "native"


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32", "fp64"])
def test_every_precision_translates(translator: Translator, precision: str) -> None:
    loaded = longstride.load(translator.folder.path, device="cpu", precision=precision)  # type: ignore[arg-type]
    assert len(loaded.translate(["a b c", "d"], "beam")) == 2
    assert f"|{precision}|" in loaded.decoder()[0].signature
