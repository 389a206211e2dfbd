"""Subject and verb that do not agree: contrastive pairs made from German translations, in the format of LingEval97.

    python benchmarks/agreement_pairs.py OUT.json SOURCE.en:TRANSLATION.de ...
    longstride contrastive OUT.json -m MODEL --decoder interleaved

LingEval97 was made with a parser from newstest; it is not at hand. These pairs come from clauses whose subject and verb
can be told without one: German subordinate clauses begin with a conjunction, have their subject right behind it (wir,
or an article, at most one adjective and a noun) and end with their finite verb. The error is that verb in the other
number. `distance`, as there, counts the words between subject and verb. Clauses with further conjunctions or commas are
left out, and so are subjects whose article and verb differ in number, which were read wrongly.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from longstride.text.corpus import read_lines

PLURALS = {
    "ist": "sind", "war": "waren", "wäre": "wären", "hat": "haben", "hatte": "hatten", "hätte": "hätten",
    "wird": "werden", "wurde": "wurden", "würde": "würden", "kann": "können", "konnte": "konnten",
    "könnte": "könnten", "muss": "müssen", "musste": "mussten", "müsste": "müssten", "soll": "sollen",
    "sollte": "sollten", "will": "wollen", "wollte": "wollten", "darf": "dürfen", "durfte": "durften",
    "möchte": "möchten", "bleibt": "bleiben", "steht": "stehen", "gibt": "geben", "geht": "gehen",
    "kommt": "kommen", "macht": "machen", "führt": "führen", "braucht": "brauchen", "enthält": "enthalten",
}  # fmt: skip
OTHER = PLURALS | {plural: singular for singular, plural in PLURALS.items()}
"""Each verb in the other number."""
CONJUNCTIONS = "dass daß weil wenn ob obwohl damit da sofern falls bevor nachdem"
ONE = "der das ein eine kein dieser dieses er es man"
"""Of singular subjects alone, as their first or only word."""
MANY = "wir alle viele einige"
EITHER = "die diese keine unsere ihre seine"
JOINED = {"und", "oder", "sowie", "wie", "als"}
"""Words behind which another clause may begin, or another subject."""

CLAUSE = re.compile(
    rf"(?:^|, )(?:{'|'.join(CONJUNCTIONS.split())}) "
    rf"(?P<first>wir|er|es|man|(?:{'|'.join([*ONE.split(), *MANY.split(), *EITHER.split()])})"
    r"(?: [a-zäöüß]+)? [A-ZÄÖÜ][\w-]+) "
    r"(?P<between>(?:[^\s,.;:!?()\"]+ ){0,20}?)"
    rf"(?P<verb>{'|'.join(OTHER)})(?=[,.;:!?]|$)",
)


def errors(translation: str) -> Iterator[dict[str, object]]:
    """A wrong translation for every clause of this one whose subject and verb are known."""
    for found in CLAUSE.finditer(translation):
        subject, between, verb = found["first"].split()[0], found["between"].split(), found["verb"]
        plural = verb not in PLURALS
        if (subject in ONE.split() and plural) or (subject in MANY.split() and not plural) or JOINED & set(between):
            continue
        wrong = translation[: found.start("verb")] + OTHER[verb] + translation[found.end("verb") :]
        yield {"contrastive": wrong, "type": "subject-verb agreement", "distance": len(between)}


def main() -> None:
    """Read the command line."""
    out, *given = sys.argv[1:]
    entries = []
    for pair in given:
        sources, translations = (read_lines(path) for path in pair.split(":"))
        for source, translation in zip(sources, translations, strict=True):
            if made := list(errors(translation)):
                entries.append({"source": source, "reference": translation, "errors": made})
    Path(out).write_text(json.dumps(entries, ensure_ascii=False, indent=1), encoding="utf-8")
    print(f"{sum(len(one['errors']) for one in entries)} pairs of {len(entries)} sentences: {out}")


if __name__ == "__main__":
    main()
