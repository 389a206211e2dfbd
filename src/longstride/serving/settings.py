"""What a server may be told: how much at once, how long, how large."""

from __future__ import annotations

from dataclasses import dataclass

from longstride.contract import option
from longstride.contract.options import Options


@dataclass(frozen=True)
class ServerSettings(Options):
    """Limits of a server."""

    rows: int = option(32, "Sentences of one decoder that are decoded side by side.", least=1, most=10**4)
    max_waiting: int = option(1024, "Sentences that may wait for a row; more are refused.", least=1, most=10**6)
    max_tokens: int = option(
        4096, "Source tokens of long sentences (more than 128 tokens) side by side.", least=1, most=10**8
    )
    timeout: float = option(30.0, "Seconds within which a request is answered, or fails.", least=0.001, most=86400)
    max_texts: int = option(256, "Texts in one request.", least=1, most=10**6)
    max_characters: int = option(50_000, "Characters in all texts of one request.", least=1, most=10**8)
    max_terms: int = option(1000, "Terms (lines, if it is text) in the glossary of one request.", least=0, most=10**6)
    max_term: int = option(200, "Characters of a term in the glossary of one request.", least=1, most=1000)
    max_body: int = option(4 << 20, "Bytes of a request's body.", least=1024, most=1 << 32)
    max_decoders: int = option(
        6,
        "Decoders beside a model's own that are kept ready for requests; of more, the one unused longest is given up.",
        least=1,
        most=1000,
    )
    max_alternatives: int = option(3, "Alternative translations that may be asked for.", least=0, most=100)
    split_above: int | None = option(
        None,
        "Lines of more tokens are split into sentences; none: all lines, as `translate` does, where the model folder "
        "says that it reads sentences, and else those of more than 100.",
        least=0,
        most=10**6,
    )
    body_timeout: float = option(10.0, "Seconds within which a request must have arrived.", least=0.001, most=86400)
    drain_timeout: float = option(30.0, "Seconds that open requests get when the server stops.", least=0, most=86400)
    file_seconds: float = option(1800.0, "Seconds that translated files can be fetched.", least=1, most=10**7)
    query_keys: bool = option(False, "Whether a request may name its API key in its address, which proxies log.")
