"""A lattice's kernels against the tensor code they replace, on random numbers: how far apart results are."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import DEFAULT_IDS, EOS, PAD, START
from longstride.ops.cuda.self_test import Random, apart
from longstride.search.lengths import Window
from longstride.systems.lattice import kernels
from longstride.systems.lattice.candidates import Candidates, usable
from longstride.systems.lattice.pipeline import packed
from longstride.systems.lattice.scoring import Scores
from longstride.systems.lattice.search import viterbi
from longstride.systems.lattice.tables import CountOptions, Tables, TablesOptions
from longstride.systems.lattice.window import assemble, with_ends

WORDS = 60
"""The vocabulary is small, so that many words are equal."""
ROWS, COLUMNS = 3, 7


def random_tables(keep: int, generator: torch.Generator) -> Tables:
    """Tables of few words, many of them equal, and some keys without any."""

    def integers(high: int, shape: torch.Size) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    tables = Tables(
        TablesOptions(WORDS, WORDS, "", "", 40 * WORDS, COLUMNS + 2, COLUMNS + 2, CountOptions(keep=keep, reach=2))
    )
    tables.first.copy_(integers(40 * WORDS, tables.first.shape))
    tables.size.copy_(integers(keep + 1, tables.size.shape) * (integers(3, tables.size.shape) > 0))
    tables.words.copy_(5 + integers(WORDS - 5, tables.words.shape))
    tables.counts.copy_(1 + integers(9, tables.counts.shape))
    tables.total.copy_(9 * keep + integers(99, tables.total.shape))
    tables.places.copy_(integers(9, tables.places.shape) * (integers(2, tables.places.shape) > 0))
    tables.places[:, 1] = 0
    return tables


def candidates(random: Random, keep: int) -> float:
    """Words must be the same, in the same order."""
    generator = torch.Generator().manual_seed(0)
    tables, device = random_tables(keep, generator), random(1).device
    there = Tables(tables.options).to(device)
    there.load_state_dict(tables.state_dict())
    source = torch.randint(0, WORDS, (ROWS, COLUMNS), generator=generator)
    lengths = torch.tensor([COLUMNS, 1, 4])
    worst = 0.0
    for k, fallback in ((5, None), (64, 7)):
        expected = tables.candidates(source, lengths, COLUMNS, k)
        expected = expected if fallback is None else usable(expected, None, fallback, PAD)
        found = there.proposed(source.to(device), lengths.to(device), COLUMNS, k, fallback)
        assert torch.equal(found.ids.cpu(), expected.ids)
        worst = max(worst, apart(found.log_scores.exp().cpu(), expected.log_scores.exp()))
    return worst


def edges(random: Random, vocabulary: int, width: int, heads: int) -> float:
    """What the first layer reads, attention to two, and shares of the vocabulary."""
    k = 5
    tokens, places = random(WORDS, width), random(3 + COLUMNS, width)
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(0, WORDS, (ROWS, COLUMNS, k), generator=generator).to(tokens.device)
    ids, column = slots_of(words)
    x = kernels.begun(words, tokens, 3.5, (places, 3))
    worst = apart(x, places[3 + column].double() + 3.5 * tokens[ids].double())

    packed_states = random(ROWS, ids.shape[1], 3 * width)
    found = kernels.attended_to_two(packed_states, words, heads)
    worst = max(worst, apart(found, attended_to_two(packed_states.double(), words, heads)))

    words = torch.randint(0, vocabulary, (ROWS, 2, k), generator=generator).to(tokens.device)
    logits = random(ROWS, 2 + k, vocabulary) * 3
    first, after = kernels.room_for_shares(words)
    by_slot, some = logits.flatten(0, 1), 2 + k + 3
    for begun in range(0, len(by_slot), some):  # a portion ends amid a row
        kernels.shares(by_slot[begun : begun + some], begun, words, first, after)
    exact = logits.double().log_softmax(-1)
    following = torch.nn.functional.pad(words, (0, 1), value=EOS)
    worst = max(worst, apart(first, exact[:, 0].gather(1, following[:, 0])))
    expected = exact[:, 2:].gather(2, following[:, 1:].expand(-1, k, -1))
    return max(worst, apart(after[:, 0], expected))


def attended_to_two(packed: Tensor, words: Tensor, heads: int) -> Tensor:
    """What :func:`kernels.attended_to_two` must give."""
    rows, columns, k = words.shape
    q, own, value = packed.view(rows, packed.shape[1], 3, heads, -1).unbind(2)
    start = torch.cat([torch.arange(columns), torch.arange(columns - 1).repeat_interleave(k)]).to(words.device)
    scores = torch.stack([(q * one).sum(-1, keepdim=True) for one in (own[:, start], own)])
    weights = (scores * q.shape[-1] ** -0.5).softmax(0)
    return (weights[0] * value[:, start] + weights[1] * value).flatten(2)


def slots_of(words: Tensor) -> tuple[Tensor, Tensor]:
    """What stands in which slot, [rows, slots] of ids, and the column that each predicts, [slots]."""
    rows, columns, k = words.shape
    ids = torch.cat([words.new_full((rows, columns), START), words[:, :-1].flatten(1)], dim=1)
    after = torch.arange(1, columns).repeat_interleave(k)
    return ids, torch.cat([torch.arange(columns), after]).to(words.device)


def paths(random: Random) -> float:
    """Outputs and scores must be the same, to the bit, and of equal paths the same one."""
    device = random(1).device
    for seed, (k, rounded) in enumerate(((64, True), (64, False), (128, False))):
        first, edges, words, window, ends = random_lattice(ROWS, COLUMNS, k, seed, rounded)
        expected = searched(first, edges, words, window, ends)
        there = None if ends is None else ends.to(device)
        for lying in (edges.to(device), on_its_side(edges.to(device))):
            found = kernels.best_paths(first.to(device), lying, words.to(device), window.to(device), there)
            assert torch.equal(found.cpu(), expected)
    return 0.0


def on_its_side(edges: Tensor) -> Tensor:
    """The same edges with those to one word side by side in memory, as :func:`kernels.shares` leaves them."""
    return edges.transpose(2, 3).contiguous().transpose(2, 3)


def random_lattice(
    rows: int, columns: int, k: int, seed: int, rounded: bool
) -> tuple[Tensor, Tensor, Tensor, Window, Tensor | None]:
    """Scores of column 0 and of edges, words, windows and, of rounded scores alone, what ending adds."""
    generator = torch.Generator().manual_seed(seed)
    first, edges = (torch.randn(rows, *more, generator=generator) for more in ((k + 1,), (columns - 1, k, k + 1)))
    if rounded:
        first, edges = first.round(), edges.round()
    words = torch.randint(5, WORDS, (rows, columns, k), generator=generator)
    words[..., 1:].masked_fill_(torch.rand(rows, columns, k - 1, generator=generator) < 0.3, PAD)
    shortest, longest = torch.randint(2, columns + 1, (2, rows), generator=generator).sort(dim=0).values
    ends = torch.randn(rows, columns, generator=generator, dtype=torch.float64).round() if rounded else None
    return first, edges, words, Window(shortest, longest), ends


def searched(first: Tensor, edges: Tensor, words: Tensor, window: Window, ends: Tensor | None) -> Tensor:
    """What :func:`kernels.best_paths` must give."""
    candidates = Candidates(words, torch.zeros(words.shape, device=words.device))
    lattice = assemble(candidates, Scores(first, edges), window, DEFAULT_IDS)
    lattice = lattice if ends is None else with_ends(lattice, ends)
    return packed(lattice, viterbi(lattice.first, lattice.edges))
