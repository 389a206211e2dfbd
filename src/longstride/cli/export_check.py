"""The check that follows an export: the other library reads what was written and decodes the same sentences."""

from __future__ import annotations

from pathlib import Path

from longstride.cli.console import out, warn
from longstride.contract import InputError
from longstride.interop.exportable import GREEDY
from longstride.interop.onnx_folder import OnnxFolder
from longstride.interop.peers import PEERS, SENTENCES, agreement, open_peer
from longstride.runtime.libraries import MissingPackageError
from longstride.text.corpus import read_lines
from longstride.translator import Translator


def lines_to_check_with(file: Path | None) -> list[str]:
    """The sentences of a file, or a few of our own."""
    if file is None:
        return list(SENTENCES)
    lines = [line for line in read_lines(file) if line.strip()]
    if not lines:
        raise InputError(f"{file}: expected at least one sentence to check with, found none.")
    return lines


def check_export(translator: Translator, to: str, folder: Path, precision: str, lines: list[str]) -> None:
    """Say how many greedy outputs agree; a format that no library here decodes is left alone."""
    if to not in (*PEERS, OnnxFolder.name) or GREEDY not in translator.decoders:
        return
    try:
        peer = OnnxFolder(folder) if to == OnnxFolder.name else open_peer(to, folder, translator, precision=precision)
    except MissingPackageError as error:
        warn(f"not checked: {error}")
        return
    found = agreement(translator, peer, lines)
    out.print(f"Greedy search by {to} {peer.version}, {precision}: {found}.", markup=False)
    if found.differing and precision == "fp32":
        warn("in fp32 only a near-tie may come out differently; look at the sentences that do.")
