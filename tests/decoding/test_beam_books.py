"""The books of a beam against plain lists, with scores made up on the spot: who lives, who ends, and when it is over.

Models seldom say what tells a wrong book from a right one: ties, an ending that is a hair better than what goes on.
Here both are common, and a step takes no model call.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS
from longstride.search.beam import Beam, BeamState, LikeHF, Search
from longstride.search.continuations import DEAD, SlotScores
from longstride.search.length_penalty import LengthPenalty
from tests.decoding.test_beam import PENALTIES

Scored = tuple[float, list[int]]


def first_best(candidates: list[Scored], width: int) -> list[Scored]:
    """Of equals the first; what is forbidden is no candidate."""
    return sorted((one for one in candidates if one[0] > DEAD), key=lambda one: -one[0])[:width]


@dataclass
class Books:
    """One sentence, by the definition."""

    search: Search
    longest: int
    live: list[Scored] = field(default_factory=lambda: [(0.0, [])])
    finished: list[Scored] = field(default_factory=list)
    """words without EOS"""
    length: int = 0
    done: bool = False

    def score(self, log_probability: float, words: int) -> float:
        """Of an output of so many words."""
        step, like_hf = self.search.step, self.search.like_hf
        if like_hf is not None and not like_hf.forced_eos:
            words = min(words, self.longest - 1)  # what is cut has no EOS
        counted = (words // step + 1) * step if self.search.count_dropped else words + 1
        return log_probability / float(self.search.penalty(torch.tensor(counted)))

    def advance(self, ids: list, gained: list, end: list) -> None:
        """By each place's words of every slot [width, step, kept] and ends [width, step]."""
        if self.done:
            self.live = []
            return
        search, width = self.search, self.search.width
        going = [[(total, [])] for total, _ in self.live]
        ended: list[list[Scored]] = [[] for _ in self.live]  # with all that is said after EOS, where that counts
        for slot in range(search.step):
            at = self.length + slot
            must_end = at >= self.longest
            may_end = must_end or at >= search.earliest
            grown, new = [], []
            for place, partial in enumerate(going):
                said = [] if must_end else list(zip(gained[place][slot], ids[place][slot], strict=True))
                stops = [(end[place][slot], EOS)] if may_end else []
                if must_end and search.like_hf is not None and search.like_hf.forced_eos:
                    stops = [(0.0, EOS)]
                grown.append(first_best([(t + s, [*w, id]) for t, w in partial for s, id in said], width))
                new.append([(t + s, [*w, id]) for t, w in partial for s, id in stops])
                longer = [(t + s, [*w, id]) for t, w in ended[place] for s, id in said + stops]
                ended[place] = first_best(first_best(longer, width) + new[-1], width)
            going = grown
            if search.count_dropped:
                if slot == search.step - 1:
                    self._rank(ended, going)
            else:
                self._rank(new, going)
        every = [(total, [*words, *more]) for place, (_, words) in enumerate(self.live) for total, more in going[place]]
        self.live = first_best(every, width if search.like_hf else width - len(self.finished))
        self.length += search.step
        self.done = self._ends_like_hf(search.like_hf) if search.like_hf else not self._hopeful()

    def _rank(self, ending: list[list[Scored]], going: list[list[Scored]]) -> None:
        """What ends finishes if it is among the best that there are places for, against what goes on."""
        own = {id(one): place for place, ends in enumerate(ending) for one in ends}
        ends, goes = ([one for each in some for one in each] for some in (ending, going))
        width, like_hf = self.search.width, self.search.like_hf
        ranked = first_best(ends + first_best(goes, width), width if like_hf else width - len(self.finished))
        for one in ranked:
            if id(one) in own:
                words = one[1][: one[1].index(EOS)]
                self.finished.append((one[0], [*self.live[own[id(one)]][1], *words]))
        if like_hf is None:
            return
        if not like_hf.forced_eos and self.length + 1 >= self.longest:
            parents = {id(one): place for place, some in enumerate(going) for one in some}
            self.finished += [
                (one[0], [*self.live[parents[id(one)]][1], *one[1]]) for one in ranked if id(one) in parents
            ]
        self.finished = sorted(self.finished, key=lambda one: -self.score(one[0], len(one[1])))[:width]

    def _hopeful(self) -> bool:
        """Whether the best that lives would enter the n best, if all it still says were certain."""
        ranked = sorted((self.score(total, len(words)) for total, words in self.finished), reverse=True)
        enough = len(ranked) >= self.search.n_best
        return any(
            not enough or self.score(total, words) > ranked[self.search.n_best - 1]
            for total, _ in self.live[:1]
            for words in range(self.length, self.longest + 1)
        )

    def _ends_like_hf(self, like_hf: LikeHF) -> bool:
        """Whether there are enough outputs, the worst of them as good as the best that lives, were it cut there."""
        past = self.longest + like_hf.forced_eos
        if not self.live or self.length >= past:
            return True
        if len(self.finished) < self.search.width:
            return False
        late = like_hf.early_stopping == "never" and self.search.penalty.strength > 0
        hoped = self.live[0][0] / float(self.search.penalty(torch.tensor(past if late else self.length)))
        worst = self.finished[-1]
        return like_hf.early_stopping is True or self.score(worst[0], len(worst[1])) >= hoped


@settings(max_examples=200)
@given(
    seed=st.integers(0, 100_000),
    width=st.integers(1, 5),
    step=st.sampled_from([1, 1, 2, 3]),
    longest=st.integers(1, 8),
    penalty=PENALTIES,
    earliest=st.integers(0, 3),
    count_dropped=st.booleans(),
    scale=st.sampled_from([0.1, 0.5, 2.0]),
    ending=st.sampled_from([1.0, 3.0]),
    rounded=st.booleans(),
    like_hf=st.none() | st.builds(LikeHF, st.sampled_from([True, False, "never"]), st.booleans()),
    data=st.data(),
)
def test_books_are_what_plain_lists_are(
    seed, width, step, longest, penalty, earliest, count_dropped, scale, ending, rounded, like_hf, data
):
    """To the bit; with few different scores many are equal, with small ones many searches are nearly over."""
    n_best, kept = data.draw(st.integers(1, width)), data.draw(st.integers(1, width))
    search = Search(width, n_best, LengthPenalty(*penalty), step, earliest, count_dropped)
    if like_hf is not None:
        step, search = 1, replace(search, step=1, count_dropped=False, like_hf=like_hf)
    generator, sentences, columns = torch.Generator().manual_seed(seed), 2, longest + step

    def scores(*shape: int) -> torch.Tensor:
        found = torch.rand(shape, dtype=torch.float64, generator=generator)
        return -scale * ((found * 3).floor() if rounded else found)

    most = torch.randint(1, longest + 1, (sentences,), generator=generator)
    state = BeamState.empty(sentences, width, columns, torch.device("cpu"))
    state.open(torch.arange(sentences), most)
    state, beam = state.numpy(), Beam(search, columns, None)
    books = [Books(search, int(one)) for one in most]
    while not state.done.all():
        gained = scores(sentences, width, step, kept).sort(dim=3, descending=True, stable=True).values
        ids = EOS + 1 + torch.randint(0, 6, gained.shape, generator=generator)
        end = ending * scores(sentences, width, step)
        beam.advance(state, SlotScores(ids.numpy(), gained.numpy(), end.numpy()))
        found = beam.scores(state)
        for row, slow in enumerate(books):
            slow.advance(ids[row].tolist(), gained[row].tolist(), end[row].tolist())
            assert bool(state.done[row]) == slow.done
            assert [one for one in state.live[row].tolist() if one > DEAD] == [total for total, _ in slow.live]
            written = state.words[row, : len(slow.live), : state.length[row]].tolist()
            assert written == [words for _, words in slow.live]
            count = len(slow.finished)
            assert (state.finished[row] > DEAD).sum() == count
            assert state.finished[row, :count].tolist() == [total for total, _ in slow.finished]
            assert found[row, :count].tolist() == [slow.score(total, len(words)) for total, words in slow.finished]
            for place, (_, words) in enumerate(slow.finished):
                length = int(state.finished_length[row, place])
                assert state.finished_words[row, place, :length].tolist() == words


@settings(max_examples=100)
@given(
    seed=st.integers(0, 100_000),
    width=st.integers(2, 4),
    step=st.integers(1, 2),
    steps=st.integers(1, 4),
    further=st.integers(1, 6),
    penalty=st.tuples(st.sampled_from(["gnmt", "average"]), st.sampled_from([-1.0, -0.5, 0.6, 1.5])),
    count_dropped=st.booleans(),
    better=st.sampled_from([-0.3, -0.04, 0.0, 0.01, 0.04, 0.3]),
    at=st.sampled_from(["now", "latest"]),
    data=st.data(),
)
def test_a_search_is_over_when_no_certain_words_could_win(
    seed, width, step, steps, further, penalty, count_dropped, better, at, data
):
    """One hypothesis lives, whose score would be by so much better than the n-th, ended now or as late as it may."""
    n_best, generator = data.draw(st.integers(1, width - 1)), torch.Generator().manual_seed(seed)
    search = Search(width, n_best, LengthPenalty(*penalty), step, 0, count_dropped)
    length, longest = step * steps, step * (steps + 1) + further
    slow = Books(search, longest, length=length)
    for _ in range(n_best):
        words = [5] * int(torch.randint(0, length, (1,), generator=generator))
        slow.finished.append((-float(torch.rand(1, generator=generator)) * 4, words))
    settled = min(slow.score(total, len(words)) for total, words in slow.finished)
    divisor = 1 / slow.score(1.0, length + step if at == "now" else longest)
    slow.live = [((settled + better) * divisor, [6] * length)]

    state = BeamState.empty(1, width, longest + step, torch.device("cpu"))
    state.open(torch.tensor([0]), torch.tensor([longest]))
    state.length[0], state.words[0, 0, :length], state.live[0, 0] = length, 6, slow.live[0][0]
    for place, (total, words) in enumerate(slow.finished):
        state.finished[0, place], state.finished_length[0, place] = total, len(words)
    certain = torch.zeros(1, width, step, 1, dtype=torch.float64)
    scores = SlotScores(torch.full(certain.shape, 7), certain, torch.full((1, width, step), DEAD).double())
    Beam(search, longest + step, torch.device("cpu")).advance(state, scores)
    slow.advance(scores.ids[0].tolist(), certain[0].tolist(), scores.end[0].tolist())
    assert state.live[0, 0] == slow.live[0][0]
    assert bool(state.done[0]) == slow.done
