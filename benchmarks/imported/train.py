"""Models that are other people's in every respect: transformers' own classes, tokenizers and Trainer, trained from
nothing. What comes out is a Hugging Face folder, for `longstride import` and `longstride adapt`.

    python benchmarks/imported/train.py t5 train.en train.de -o runs/t5 --updates 3500
    python benchmarks/imported/train.py bart train.src train.tgt -o runs/bart --updates 3000
"""

from __future__ import annotations

import argparse
import lzma
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def lines_of(path: Path, most: int) -> list[str]:
    """The first lines of a text, compressed or not."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for _, line in zip(range(most), file, strict=False)]


def unigram(lines: Sequence[str], size: int) -> Any:
    """As T5 has it: a unigram model over pieces that begin with a mark for the space, `</s>` behind every text."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    made.train_from_iterator(
        lines, trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def byte_pairs(lines: Sequence[str], size: int) -> Any:
    """As BART has it: byte-level pairs, `<s>` before and `</s>` behind every text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        lines,
        trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        mask_token="<mask>", model_max_length=512,
    )  # fmt: skip


def t5(o: argparse.Namespace, size: int) -> Any:
    """As t5-small has it, but for its size."""
    config = transformers.T5Config(
        vocab_size=size, d_model=o.width, d_kv=o.width // o.heads, d_ff=4 * o.width, num_layers=o.layers,
        num_heads=o.heads, dropout_rate=0.1, feed_forward_proj="relu", pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def bart(o: argparse.Namespace, size: int) -> Any:
    """As bart-base has it, but for its size."""
    config = transformers.BartConfig(
        vocab_size=size, d_model=o.width, encoder_layers=o.layers, decoder_layers=o.layers,
        encoder_attention_heads=o.heads, decoder_attention_heads=o.heads, encoder_ffn_dim=4 * o.width,
        decoder_ffn_dim=4 * o.width, max_position_embeddings=512, dropout=0.1, bos_token_id=0, pad_token_id=1,
        eos_token_id=2, decoder_start_token_id=2, forced_bos_token_id=0, forced_eos_token_id=2,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config)


FAMILIES = {"t5": (t5, unigram), "bart": (bart, byte_pairs)}


class Batches(torch.utils.data.IterableDataset[Any]):
    """Whole batches of pairs about as long as each other, so that little is padding; padded to eighths of 64."""

    def __init__(self, pairs: list[tuple[list[int], list[int]]], pad: int, tokens: int, seed: int) -> None:
        self._pairs, self._pad, self._tokens, self._random = pairs, pad, tokens, random.Random(seed)

    def __iter__(self) -> Any:
        while True:
            order = sorted(self._pairs, key=lambda pair: max(map(len, pair)) + self._random.random() * 4)
            batches: list[list[Any]] = [[]]
            longest = 0
            for pair in order:
                longest = max(longest, *map(len, pair))
                if batches[-1] and (len(batches[-1]) + 1) * longest > self._tokens:
                    batches.append([])
                    longest = max(map(len, pair))
                batches[-1].append(pair)
            self._random.shuffle(batches)
            for batch in batches:
                yield self._tensors(batch)

    def _tensors(self, batch: list[Any]) -> dict[str, torch.Tensor]:
        def filled(side: int, value: int) -> torch.Tensor:
            rows = [torch.tensor(pair[side]) for pair in batch]
            wide = -(-max(map(len, rows)) // 8) * 8
            return torch.stack([torch.nn.functional.pad(row, (0, wide - len(row)), value=value) for row in rows])

        source = filled(0, self._pad)
        return {
            "input_ids": source,
            "attention_mask": (source != self._pad).long(),
            "labels": filled(1, -100),
        }


def main() -> None:
    """Tokenizer, model, training, folder."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("family", choices=FAMILIES)
    asked.add_argument("source", type=Path)
    asked.add_argument("target", type=Path)
    asked.add_argument("-o", "--output", type=Path, required=True)
    asked.add_argument("--updates", type=int, default=3000)
    asked.add_argument("--tokens", type=int, default=24576, help="a batch's, padding counted, of the longer side")
    asked.add_argument("--lines", type=int, default=300_000)
    asked.add_argument("--vocabulary", type=int, default=16_000)
    asked.add_argument("--width", type=int, default=512)
    asked.add_argument("--heads", type=int, default=8)
    asked.add_argument("--layers", type=int, default=6)
    asked.add_argument("--longest", type=int, default=384, help="longer texts are cut")
    asked.add_argument("--peak", type=float, help="highest learning rate (default: 0.01 for t5, else 8e-4)")
    o = asked.parse_args()
    transformers.set_seed(1)
    make, train_tokenizer = FAMILIES[o.family]
    texts = lines_of(o.source, o.lines), lines_of(o.target, o.lines)
    tokenizer = train_tokenizer([line for side in texts for line in side[:100_000]], o.vocabulary)
    ids = [
        tokenizer(side, truncation=True, max_length=o.longest, return_attention_mask=False)["input_ids"]
        for side in texts
    ]
    model = make(o, len(tokenizer))
    print(f"{model.num_parameters():,} weights, {len(ids[0]):,} pairs")
    on_gpu = torch.cuda.is_available()
    peak = o.peak or (1e-2 if o.family == "t5" else 8e-4)
    # T5's embeddings begin at a deviation of 1, its other weights far below: it wants rates in proportion to them.
    # PyTorch's Adafactor takes all weights at once; transformers' own takes half of an update's time by its launches.
    optimizer = torch.optim.Adafactor(model.parameters(), lr=peak, foreach=on_gpu) if o.family == "t5" else None
    arguments = transformers.TrainingArguments(
        output_dir=str(o.output / "trainer"), max_steps=o.updates, learning_rate=peak, lr_scheduler_type="linear",
        warmup_steps=min(500, o.updates // 4), weight_decay=0.01, adam_beta2=0.98,
        bf16=on_gpu, use_cpu=not on_gpu, per_device_train_batch_size=1, logging_steps=max(1, o.updates // 20),
        save_strategy="no", report_to=[], dataloader_num_workers=2 if on_gpu else 0, disable_tqdm=True,
    )  # fmt: skip
    data = Batches(list(zip(*ids, strict=True)), tokenizer.pad_token_id, o.tokens, seed=1)
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=lambda batches: batches[0],
        optimizers=(optimizer, None),
    )
    try:
        trainer.train()
    except KeyboardInterrupt:
        print(f"stopped after {trainer.state.global_step:,} of {o.updates:,} updates; what is there is kept")
    model.generation_config.max_length = 256
    model.generation_config.num_beams = 1
    model.float().save_pretrained(o.output)
    tokenizer.save_pretrained(o.output)


if __name__ == "__main__":
    main()
