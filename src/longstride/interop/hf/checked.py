"""An import as commands do it: read, written, opened as its users will open it, and compared with transformers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from longstride.contract import ModelFolderError, OptionError, Source, WorkError
from longstride.interop.hf.check import Compared, compare_with_transformers
from longstride.interop.hf.importing import Imported, import_folder
from longstride.runtime import libraries
from longstride.text.folders import folder_written_whole
from longstride.translator import Translator, load


def import_checked(
    folder: Path,
    into: Path,
    lines: Sequence[str] | None,
    languages: tuple[str | None, str | None] = (None, None),
    *,
    ignore: Collection[str] = (),
    note: Callable[[str], None] = lambda said: None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Imported, Compared | None]:
    """Write a Hugging Face folder as a model folder that opens and, of `lines`, makes what transformers makes.

    Without lines nothing is compared, and each field that is not known must be named in `ignore`.
    """
    found = import_folder(folder, *languages)
    _check_ignored(folder, found.ignored, ignore, lines is not None)
    for said in found.notes:
        note(said)
    if named := _shortened(found.ignored):
        why = "" if lines is None else ", as transformers does not read it either"
        note(f"{folder}: ignored{why}: {named}.")
    compared = None
    with folder_written_whole(into) as building:
        found.save(building)
        translator = load(building, device="cpu")
        try_out(translator)
        if lines is not None:
            compared = compare_with_transformers(folder, translator, lines, languages, found.ignored, progress)
            if compared.first is not None:
                raise WorkError(f"{folder}: {compared} Nothing was written.")
    return found, compared


def try_out(translator: Translator) -> None:
    """Make every decoder of a folder, and take one step of a sentence by the default one."""
    for name in translator.decoders:
        translator.decoder(name)
    decoder, limits = translator.decoder()
    source = Source.of(translator.encode(["Yes."], warn=lambda said: None))
    session = decoder.begin(source, limits, 1)
    (ticket,) = session.admit(source)
    session.advance()
    session.cancel(ticket)
    session.close()


def _check_ignored(folder: Path, unknown: Sequence[str], ignore: Collection[str], compared: bool) -> None:
    """Refuse fields that are not known, unless outputs are compared or the fields are named in `ignore`."""
    if wrong := [name for name in ignore if name not in unknown]:
        raise OptionError(
            f"--ignore-field expects a field or tensor of {folder} that is not known "
            f"({_shortened(unknown) or 'there is none'}), found {wrong[0]!r}."
        )
    left = [] if compared else [name for name in unknown if name not in ignore]
    home, flags = shlex.quote(str(folder)), "".join(f" --ignore-field {shlex.quote(name)}" for name in unknown)
    if compared:
        try:
            libraries.package("transformers")
        except libraries.MissingPackageError as error:
            raise libraries.MissingPackageError(
                f"{error} Or import without comparing outputs: --unchecked{flags}."
            ) from None
    if left:
        raise ModelFolderError(
            f"{folder}: expected fields and tensors that are known, found {_shortened(left)}; install transformers, so "
            f"that outputs are compared, or name them: longstride import {home} -o DIR --unchecked{flags}."
        )


def _shortened(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:60]}..." for name in names[:20]]
    return ", ".join([*shown, *([f"{len(names) - 20} more"] if len(names) > 20 else [])])
