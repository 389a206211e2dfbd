"""Tokenizer folders of each Hugging Face family, trained on lines made here and saved by the family's own class."""

from __future__ import annotations

import io
import json
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

_TEXT = """
the house is green and we walk quickly home don't can't naïve café Straße grün Haus über Öl señor 3.14 (yes) [no]
“quoted” l'été 日本語 東京 привет мир 🙂 👩‍🚀 well-known e-mail @home #1 a b c d ½ ﬁne Ⅷ
"""
_SPECIAL = """
</s> <pad> <unk> <s> <mask> <mask_2> <extra_id_0> >>deu<< >>fra<< __en__ __de__ eng_Latn deu_Latn en_XX de_DE >> <<
"""
WORDS = _TEXT.split()
SPECIAL_TEXTS = _SPECIAL.split()
"""What some family or other takes for more than text."""


Lines = Sequence[str] | None
"""What to train on; None: lines made here."""


def made_lines(count: int = 300, seed: int = 0) -> list[str]:
    """Lines of a few words each."""
    draw = random.Random(seed)
    ends = (".", "!", "?", "", " .", " ,")
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) + draw.choice(ends) for _ in range(count)]


def spm(lines: Sequence[str], size: int = 160, kind: str = "unigram", **options: Any) -> bytes:
    """A SentencePiece model, as large as the lines allow."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=size,
        model_type=kind,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


def pieces(model: bytes) -> list[tuple[str, float]]:
    """Its pieces with their scores."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [(processor.id_to_piece(id), processor.get_score(id)) for id in range(processor.get_piece_size())]


def _saved(tokenizer: Any, folder: Path) -> Path:
    tokenizer.save_pretrained(folder)
    return folder


def _json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")


def marian(folder: Path, separate: bool = False, lines: Lines = None, size: int = 150, **options: Any) -> Path:
    """source.spm, target.spm, vocab.json; a vocabulary for each side if `separate`."""
    from transformers import MarianTokenizer

    folder.mkdir(parents=True)
    models = {"source": spm(lines or made_lines(seed=1), size), "target": spm(lines or made_lines(seed=2), size - 30)}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    found = {side: [piece for piece, _ in pieces(model)] for side, model in models.items()}
    both = ["</s>", "<unk>", *found["source"], *found["target"]]
    shared = list(dict.fromkeys([*both, ">>deu<<", ">>fra<<", "<pad>"]))
    if separate:
        special = ["<pad>", "<unk>", "</s>"]
        sides = {side: list(dict.fromkeys([*special, *found[side]])) for side in found}
        _json(folder / "vocab.json", {piece: id for id, piece in enumerate(sides["source"])})
        _json(folder / "target_vocab.json", {piece: id for id, piece in enumerate(sides["target"])})
        options |= {"separate_vocabs": True, "target_vocab_file": str(folder / "target_vocab.json")}
    else:
        _json(folder / "vocab.json", {piece: id for id, piece in enumerate(shared)})
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sacremoses is recommended
        return _saved(MarianTokenizer(*files, source_lang="en", target_lang="de", **options), folder)


def m2m100(folder: Path, lines: Lines = None, size: int = 160, **options: Any) -> Path:
    """sentencepiece.bpe.model and vocab.json; languages beside them."""
    from transformers import M2M100Tokenizer

    folder.mkdir(parents=True)
    model = spm(lines or made_lines(), size, kind="bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *(piece for piece, _ in pieces(model)[3:])]
    _json(folder / "vocab.json", {piece: id for id, piece in enumerate(vocabulary)})
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    return _saved(M2M100Tokenizer(*files, src_lang="en", tgt_lang="de", **options), folder)


def bart(folder: Path, whole: bool = True, lines: Lines = None, size: int = 340, **options: Any) -> Path:
    """Byte-level BPE as tokenizer.json or, if not `whole`, as vocab.json and merges.txt."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import BartTokenizer

    folder.mkdir(parents=True)
    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(lines or made_lines(), vocab_size=size, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    if whole:
        tokenizer = BartTokenizer.from_pretrained(folder, **options)
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        return _saved(tokenizer, folder)
    _json(folder / "tokenizer_config.json", {"tokenizer_class": "BartTokenizer", **options})
    return folder


def t5(folder: Path, lines: Lines = None, size: int = 160, **options: Any) -> Path:
    """tokenizer.json with sentinels at the end."""
    from transformers import T5Tokenizer

    model = spm(lines or made_lines(), size, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    extra = [(f"<extra_id_{number}>", 0.0) for number in range(9, -1, -1)]
    return _saved(T5Tokenizer(vocab=[*pieces(model), *extra], extra_ids=10, **options), folder)


def pegasus(folder: Path, lines: Lines = None, size: int = 160, **options: Any) -> Path:
    """tokenizer.json with masks and numbered unknowns at the beginning."""
    from transformers import PegasusTokenizer

    first = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 10)), "<unk>"]
    vocabulary = [(token, 0.0) for token in first] + pieces(spm(lines or made_lines(), size))[3:]
    return _saved(PegasusTokenizer(vocab=vocabulary, offset=10, **options), folder)


def _fairseq(lines: Lines, size: int) -> list[tuple[str, float]]:
    first = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    return first + pieces(spm(lines or made_lines(), size))[3:]


def mbart(folder: Path, lines: Lines = None, size: int = 160, **options: Any) -> Path:
    """tokenizer.json; languages stand behind the text."""
    from transformers import MBartTokenizer

    return _saved(MBartTokenizer(vocab=_fairseq(lines, size), **options), folder)


def mbart50(folder: Path, lines: Lines = None, size: int = 160, **options: Any) -> Path:
    """tokenizer.json; languages stand before the text."""
    from transformers import MBart50Tokenizer
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    codes = [(code, 0.0) for code in (*FAIRSEQ_LANGUAGE_CODES, "<mask>")]
    return _saved(MBart50Tokenizer(vocab=[*_fairseq(lines, size), *codes], **options), folder)


def nllb(folder: Path, lines: Lines = None, size: int = 200, **options: Any) -> Path:
    """tokenizer.json of BPE; languages before the text, or behind it by legacy_behaviour."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import NllbTokenizer

    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    trained.train_from_iterator(lines or made_lines(), trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return _saved(NllbTokenizer(vocab=model["vocab"], merges=merges, **options), folder)


FAMILIES = {
    "marian": marian,
    "m2m100": m2m100,
    "bart": bart,
    "t5": t5,
    "pegasus": pegasus,
    "mbart": mbart,
    "mbart50": mbart50,
    "nllb": nllb,
}
