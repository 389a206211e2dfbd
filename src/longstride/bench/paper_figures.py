"""What the papers report, to stand beside our own figures. On other data and models: only differences compare.

blockwise   Stern, Shazeer, Uszkoreit 2018, Blockwise Parallel Decoding: WMT14 English-German, newstest2013,
            Transformer base; Table 1, and section 7.1 for top-2 and top-3
gad         Xia, Ge, Wei, Sui 2022, Generalized Aggressive Decoding: WMT14 English-German, Transformer base;
            Tables 1 and 9 on newstest2014 (tokenized BLEU), Tables 2 and 3 on the development set
interleaved Zhang, Titov, Sennrich 2020, Fast Interleaved Bidirectional Sequence Generation: WMT14 English-German,
            its test set; Table 3
"""

from __future__ import annotations

BLOCKWISE: dict[tuple[bool, str], dict[int, tuple[float, float]]] = {
    (True, "original"): {
        1: (26.00, 1.00),
        2: (25.81, 1.51),
        4: (25.84, 1.73),
        6: (26.08, 1.76),
        8: (25.82, 1.76),
        10: (25.69, 1.74),
    },
    (True, "distilled"): {
        1: (26.41, 1.00),
        2: (26.52, 1.55),
        4: (26.31, 1.85),
        6: (26.26, 1.90),
        8: (26.25, 1.91),
        10: (26.34, 1.90),
    },
    (False, "original"): {2: (25.74, 1.78), 4: (25.05, 2.69), 6: (24.69, 2.98), 8: (24.27, 3.01), 10: (23.51, 2.87)},
    (False, "distilled"): {2: (26.58, 1.88), 4: (26.36, 3.27), 6: (26.18, 4.18), 8: (26.11, 4.69), 10: (25.60, 4.95)},
}
"""Table 1: (base frozen, data) -> k -> BLEU and mean accepted block"""

BLOCKWISE_TOP: dict[int, dict[int, tuple[float, float]]] = {
    2: {2: (26.49, 1.92), 4: (26.22, 3.47), 6: (25.90, 4.59), 8: (25.71, 5.34), 10: (25.04, 5.67)},
    3: {2: (26.41, 1.93), 4: (26.14, 3.52), 6: (25.56, 4.69), 8: (25.41, 5.52), 10: (24.68, 5.91)},
}
"""Section 7.1: fine-tuned on distilled data, B of top-B -> k -> BLEU and mean accepted block"""

GAD: dict[str, tuple[float, str, str]] = {
    "beam": (28.89, "N", ""),
    "greedy": (28.73, "N", "0.18"),
    "draft": (26.48, "1.6", ""),
    "exact": (28.73, "4.9", "0.18"),
    "top:3,gap:1.0": (28.89, "4.0", "0.17"),
    "top:5,gap:3.0": (28.73, "3.1", ""),
}
"""Table 1, k = 25: method -> BLEU and iterations; Table 9: repetition, %"""

GAD_BLOCKS: dict[int, tuple[float, float]] = {
    10: (5.97, 26.68),
    15: (6.74, 26.94),
    20: (7.24, 26.75),
    25: (7.56, 26.92),
    30: (7.44, 26.75),
}
"""Table 2, top-3 with gap 1: k -> mean accepted tokens and BLEU"""

GAD_SWEEP: dict[tuple[int, float], tuple[float, float]] = {
    (3, 1.0): (7.56, 27.02),
    (3, 2.0): (8.64, 26.92),
    (3, 3.0): (9.46, 26.84),
    (3, 4.0): (10.04, 26.78),
    (3, 5.0): (10.38, 26.70),
    (5, 1.0): (7.58, 27.02),
    (5, 2.0): (8.77, 26.92),
    (5, 3.0): (9.72, 26.84),
    (5, 4.0): (10.50, 26.74),
    (5, 5.0): (10.99, 26.64),
}
"""Table 3, k = 25: (β of top-β, gap τ) -> mean accepted tokens and BLEU; greedy has 26.62"""

MUTUAL_INFORMATION: dict[tuple[str, int], float] = {
    ("left-to-right", 2): 0.235,
    ("2-directions-side-to-middle", 2): -0.014,
}
"""Table 3: (order, words per step) -> estimated point-wise mutual information, to base 10"""
