"""What the papers on interleaved and on lattice decoding report, to stand beside our own figures.

interleaved   Zhang, Titov, Sennrich 2020, Fast Interleaved Bidirectional Sequence Generation: WMT14 English-German,
              Transformer base, newstest2014, detokenized BLEU; Tables 1 to 4
lattice       Deng, Rush 2021, Sequence-to-Lattice Models for Fast Translation: IWSLT14 German-English, tokenized BLEU;
              Tables 2 and 9. The BLEU column of its Table 3 is a copy of Table 9's and stands nowhere here.
"""

from __future__ import annotations

INTERLEAVED: dict[tuple[int, int, int], tuple[float, float, float, str]] = {
    (1, 1, 4): (26.9, 27.3, 1.00, "1.00×"),
    (1, 1, 1): (26.0, 26.8, 1.32, ""),
    (2, 1, 4): (26.2, 27.1, 1.90, "0.98×"),
    (2, 1, 1): (25.0, 26.8, 2.33, ""),
    (2, 2, 4): (23.0, 26.3, 3.31, "0.98×"),
    (2, 2, 1): (21.7, 26.0, 4.35, ""),
    (4, 1, 4): (21.5, 24.6, 3.79, "0.98×"),
    (4, 1, 1): (19.7, 24.1, 4.55, ""),
}
"""Table 1: (h, c, beam) -> BLEU, BLEU with distillation, speed-up over beam 4, training speed"""

ABLATIONS: dict[str, float] = {
    "IBDecoder": 26.2,
    "IBDecoder, vanilla mask": 25.7,
    "IBDecoder, vanilla positions": 25.9,
    "IBDecoder, middle to side": 20.7,
    "IBDecoder, independent directions": 23.9,
    "vanilla SA, c=2": 24.1,
    "IBDecoder + SA, c=2": 23.0,
    "vanilla SA, c=4": 18.7,
}
"""Table 2, in its order: BLEU, beam 4, no distillation"""

PERPLEXITY: dict[tuple[bool, bool], float] = {
    (False, False): 4.04,
    (False, True): 6.95,
    (True, False): 4.86,
    (True, True): 4.72,
}
"""Table 3: (two directions, two words per step) -> perplexity"""

MUTUAL_INFORMATION: dict[bool, float] = {False: 0.235, True: -0.014}
"""Table 3: two directions -> estimated mutual information, to base 10"""

STUDENTS: dict[tuple[int, int, bool, bool], tuple[float, float]] = {
    (1, 1, False, False): (26.9, 1.00),
    (1, 1, True, False): (26.0, 2.19),
    (1, 1, True, True): (26.7, 2.32),
    (2, 1, False, False): (26.2, 1.90),
    (2, 1, True, False): (25.0, 4.29),
    (2, 1, True, True): (26.6, 4.41),
    (2, 2, False, False): (23.0, 3.31),
    (2, 2, True, False): (21.5, 7.13),
    (2, 2, True, True): (24.5, 7.24),
}
"""Table 4: (h, c, two decoder layers, distilled) -> BLEU and speed-up, beam 4"""

LATTICE_WINDOW_0: dict[int, tuple[float, float]] = {64: (31.05, 9.99), 32: (30.16, 9.81), 1: (5.10, 0.41)}
"""Table 2: K -> BLEU and milliseconds, distilled, validation set, window 0"""

LATTICE: dict[tuple[str, int], tuple[float, float]] = {
    ("distilled", 32): (30.90, 17.12),
    ("distilled", 64): (31.83, 16.78),
    ("distilled", 128): (32.02, 16.13),
    ("original", 32): (30.00, 17.12),
    ("original", 64): (31.15, 16.93),
    ("original", 128): (31.33, 16.11),
}
"""Table 9: (data, K) -> BLEU and speed-up over beam 5"""

LATTICE_BEAM = 34.46
"""Table 9: the Transformer's, beam 5"""

LATTICE_DEPTHS: dict[int, float] = {1: 16.78, 2: 14.47, 3: 12.74, 4: 9.62, 5: 10.28, 6: 9.41}
"""Table 3: layers of the scorer -> speed-up over beam 5, K = 64"""
