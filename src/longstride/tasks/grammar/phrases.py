"""The templates: English sentences with numbers, times, dates and prices, and their German translations.

Every template draws its parts at random; the German follows English word for word only as far as German allows (verb
second, verb last, separable verbs). One English sentence has exactly one German one. Knows no file and no seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate

from longstride.tasks.grammar import parts, spoken
from longstride.tasks.grammar.lexicon import (
    ACTIONS,
    ADJECTIVES,
    ARTICLES,
    BUILDING_ADJECTIVES,
    BUILDINGS,
    CITIES,
    DEEDS,
    ERRANDS,
    EVENTS,
    FINDS,
    GO,
    HAVE,
    LIVE,
    NAMES,
    PURPOSES,
    ROOMS,
    SHOPS,
    SPANS,
    STOPS,
    SUBJECTS,
    THINGS,
    TRAVEL,
    WORK,
)
from longstride.tasks.grammar.spoken import Pair

_Template = Callable[[random.Random], Pair]


def draw(rng: random.Random) -> Pair:
    """One English sentence and its German translation."""
    return rng.choices(_TEMPLATES, cum_weights=_CUMULATIVE)[0](rng)


def _bare_number(rng: random.Random) -> Pair:
    return spoken.number(parts.any_number(rng))


def _fragment(rng: random.Random) -> Pair:
    (ew, gw), (ed, gd), (et, gt) = rng.choice(spoken.DAYS), parts.date(rng), parts.time(rng)
    if rng.random() < 0.5:
        return f"on {ew}, {ed}", f"am {gw}, dem {gd}"
    return f"on {ew} at {et}", f"am {gw} um {gt}"


def _sum(rng: random.Random) -> Pair:
    left, right = rng.randrange(1000), rng.randrange(1000)
    sign, result = rng.choice((("plus", left + right), ("minus", max(left, right) - min(left, right))))
    first, second = (left, right) if sign == "plus" else (max(left, right), min(left, right))
    (e1, g1), (e2, g2), (e3, g3) = map(spoken.number, (first, second, result))
    return parts.sentence(f"{e1} {sign} {e2} is {e3}", f"{g1} {sign} {g2} ist {g3}")


def _train_leaves(rng: random.Random) -> Pair:
    (ec, gc), (et, gt) = rng.choice(CITIES), parts.time(rng)
    if rng.random() < 0.4:
        return parts.sentence(f"the train to {ec} leaves at {et}", f"der Zug nach {gc} fährt um {gt}")
    ep, gp = spoken.number(rng.randint(1, 30))
    return parts.sentence(
        f"the train to {ec} leaves at {et} from platform {ep}", f"der Zug nach {gc} fährt um {gt} von Gleis {gp} ab"
    )


def _train_arrives(rng: random.Random) -> Pair:
    (ec, gc), (et, gt), (ep, gp) = rng.choice(CITIES), parts.time(rng), spoken.number(rng.randint(1, 30))
    return parts.sentence(
        f"the train from {ec} arrives at {et} on platform {ep}", f"der Zug aus {gc} kommt um {gt} auf Gleis {gp} an"
    )


def _train_question(rng: random.Random) -> Pair:
    (ec, gc), (e1, g1), (e2, g2) = rng.choice(CITIES), parts.time(rng), parts.time(rng)
    return parts.sentence(
        f"does the train to {ec} leave at {e1} or at {e2}", f"fährt der Zug nach {gc} um {g1} oder um {g2}", "?"
    )


def _costs(rng: random.Random) -> Pair:
    (ed, gd), (ep, gp) = parts.described(rng, THINGS)[0], parts.price(rng)
    return parts.sentence(f"{ed} costs {ep}", f"{gd} kostet {gp}")


def _how_much(rng: random.Random) -> Pair:
    english, german = parts.several(rng)
    return parts.sentence(f"how much do {english} cost", f"wie viel kosten {german}", "?")


def _opens(rng: random.Random) -> Pair:
    shop, (e1, g1), (e2, g2) = rng.choice(SHOPS), parts.time(rng), parts.time(rng)
    article = ARTICLES[shop.gender][0]
    return parts.sentence(
        f"the {shop.english} opens at {e1} and closes at {e2}",
        f"{article} {shop.german} öffnet um {g1} und schließt um {g2}",
    )


def _open_until(rng: random.Random) -> Pair:
    shop, (et, gt), (first, last) = rng.choice(SHOPS), parts.time(rng), sorted(rng.sample(range(7), 2))
    (e1, g1), (e2, g2) = spoken.DAYS[first], spoken.DAYS[last]
    return parts.sentence(
        f"from {e1} to {e2} the {shop.english} is open until {et}",
        f"von {g1} bis {g2} ist {ARTICLES[shop.gender][0]} {shop.german} bis {gt} geöffnet",
    )


def _closed(rng: random.Random) -> Pair:
    shop, month = rng.choice(SHOPS), rng.randint(1, 12)
    first, last = sorted(rng.sample(range(1, spoken.MONTH_LENGTHS[month - 1] + 1), 2))
    (e1, g1), (e2, g2) = spoken.ordinal(first), spoken.day_and_month(last, month)
    return parts.sentence(
        f"the {shop.english} is closed from the {e1} to {e2}",
        f"{ARTICLES[shop.gender][0]} {shop.german} ist vom {g1}n bis zum {g2} geschlossen",
    )


def _dated_action(rng: random.Random) -> Pair:
    (ew, gw), (ed, gd), who, (et, gt) = (
        rng.choice(spoken.DAYS),
        parts.date(rng),
        rng.choice(SUBJECTS),
        parts.several(rng),
    )
    ev, gv = rng.choice(ACTIONS).of(who)
    return parts.sentence(f"on {ew}, {ed}, {who.english} {ev} {et}", f"am {gw}, dem {gd}, {gv} {who.german} {gt}")


def _today(rng: random.Random) -> Pair:
    month = rng.randint(1, 12)
    (eo, go), (em, gm) = spoken.ordinal(rng.randint(1, spoken.MONTH_LENGTHS[month - 1])), spoken.MONTHS[month - 1]
    ew, gw = rng.choice(spoken.DAYS)
    e, g = rng.choice((("today is", "heute ist"), ("tomorrow is", "morgen ist"), ("yesterday was", "gestern war")))
    return parts.sentence(f"{e} {ew}, the {eo} of {em}", f"{g} {gw}, der {go} {gm}")


def _now(rng: random.Random) -> Pair:
    english, german, first, last = rng.choice(
        (
            ("in the morning", "morgens", 5, 10),
            ("in the afternoon", "nachmittags", 1, 4),
            ("in the evening", "abends", 6, 10),
        )
    )
    et, gt = parts.time(rng, first, last)
    return parts.sentence(f"it is {et} {english}", f"es ist {gt} {german}")


def _born(rng: random.Random) -> Pair:
    who = rng.choice([subject for subject in SUBJECTS if subject.person == "it"])
    (ed, gd), (ey, gy) = parts.date(rng), parts.year(rng, 1900)
    return parts.sentence(f"{who.english} was born on {ed}, {ey}", f"{who.german} wurde am {gd} {gy} geboren")


def _need_for(rng: random.Random) -> Pair:
    who, (et, gt), (ep, gp) = rng.choice(SUBJECTS), parts.several(rng), rng.choice(PURPOSES)
    ev, gv = rng.choice(ACTIONS).of(who)
    return parts.sentence(f"{who.english} {ev} {et} {ep}", f"{who.german} {gv} {gt} {gp}")


def _distance(rng: random.Random) -> Pair:
    (eb, gb), (ec, gc), (en, gn) = (
        parts.described(rng, BUILDINGS, BUILDING_ADJECTIVES)[0],
        rng.choice(CITIES),
        parts.some(rng, 2, 999),
    )
    return parts.sentence(f"{eb} is {en} kilometres from {ec}", f"{gb} ist {gn} Kilometer von {gc} entfernt")


def _flight(rng: random.Random) -> Pair:
    (ec, gc), hours, (em, gm) = rng.choice(CITIES), rng.randint(1, 20), parts.some(rng, 2, 59)
    eh, gh = (
        ("one hour", "eine Stunde")
        if hours == 1
        else (" ".join(p) for p in zip(spoken.number(hours), ("hours", "Stunden"), strict=True))
    )
    e, g = rng.choice((("the flight to", "der Flug nach"), ("the journey to", "die Fahrt nach")))
    return parts.sentence(f"{e} {ec} takes {eh} and {em} minutes", f"{g} {gc} dauert {gh} und {gm} Minuten")


def _event_begins(rng: random.Random) -> Pair:
    event, (ew, gw), (et, gt) = rng.choice(EVENTS), rng.choice(spoken.DAYS), parts.time(rng)
    return parts.sentence(
        f"the {event.english} on {ew} begins at {et}",
        f"{ARTICLES[event.gender][0]} {event.german} am {gw} beginnt um {gt}",
    )


def _event_takes_place(rng: random.Random) -> Pair:
    event, (ew, gw), (ed, gd) = rng.choice(EVENTS), rng.choice(spoken.DAYS), parts.date(rng)
    (et, gt), (ec, gc) = parts.time(rng), rng.choice(CITIES)
    return parts.sentence(
        f"the {event.english} takes place on {ew}, {ed}, at {et} in {ec}",
        f"{ARTICLES[event.gender][0]} {event.german} findet am {gw}, dem {gd}, um {gt} in {gc} statt",
    )


def _inhabitants(rng: random.Random) -> Pair:
    (ec, gc), (en, gn) = rng.choice(CITIES), parts.some(rng, 1000, 999_999)
    return parts.sentence(f"{ec} has {en} inhabitants", f"{gc} hat {gn} Einwohner")


def _there_are(rng: random.Random) -> Pair:
    er, gr = rng.choice(ROOMS)
    if rng.random() < 0.2:
        english, german = parts.one(rng)
        return parts.sentence(f"there is {english} {er}", f"es gibt {german} {gr}")
    english, german = parts.several(rng)
    return parts.sentence(f"there are {english} {er}", f"es gibt {german} {gr}")


def _traded(rng: random.Random) -> Pair:
    who, (et, gt), (ep, gp), (ed, gd) = rng.choice(SUBJECTS), parts.several(rng), parts.price(rng), rng.choice(DEEDS)
    return parts.sentence(f"{who.english} {ed} {et} for {ep}", f"{who.german} {HAVE.of(who)[1]} {gt} für {gp} {gd}")


def _found(rng: random.Random) -> Pair:
    who, (ef, gf), (er, gr) = rng.choice(SUBJECTS), rng.choice(FINDS), rng.choice(ROOMS)
    et, gt = parts.one(rng) if rng.random() < 0.3 else parts.several(rng)
    return parts.sentence(f"{who.english} {ef} {et} {er}", f"{who.german} {HAVE.of(who)[1]} {gt} {gr} {gf}")


def _paid(rng: random.Random) -> Pair:
    who, (et, gt), (ep, gp) = rng.choice(SUBJECTS), parts.described(rng, THINGS)[1], parts.price(rng)
    return parts.sentence(f"{who.english} paid {ep} for {et}", f"{who.german} {HAVE.of(who)[1]} {gp} für {gt} bezahlt")


def _telephone(rng: random.Random) -> Pair:
    digits = [spoken.number(rng.randrange(10)) for _ in range(rng.randint(5, 8))]
    name = rng.choice(NAMES)
    owner, german = rng.choice((("my", "meine"), ("our", "unsere"), (f"{name}'s", f"{name}s")))
    return parts.sentence(
        f"{owner} telephone number is {' '.join(e for e, _ in digits)}",
        f"{german} Telefonnummer ist {' '.join(g for _, g in digits)}",
    )


def _temperature(rng: random.Random) -> Pair:
    (ec, gc), (en, gn) = rng.choice(CITIES), parts.some(rng, 2, 39)
    sign = rng.choice(("", "minus "))
    return parts.sentence(f"today it is {sign}{en} degrees in {ec}", f"heute sind es {sign}{gn} Grad in {gc}")


def _please(rng: random.Random) -> Pair:
    (ew, gw), (et, gt) = rng.choice(spoken.DAYS), parts.time(rng)
    e, g, particle = rng.choice((("come", "kommen Sie", ""), ("call", "rufen Sie", " an")))
    return parts.sentence(f"please {e} on {ew} at {et}", f"bitte {g} am {gw} um {gt}{particle}")


def _room(rng: random.Random) -> Pair:
    who, (en, gn), (eo, go) = (
        rng.choice(SUBJECTS),
        spoken.number(rng.randint(1, 999)),
        spoken.ordinal(rng.randint(1, 29)),
    )
    ev, gv = LIVE.of(who)
    return parts.sentence(
        f"{who.english} {ev} in room {en} on the {eo} floor", f"{who.german} {gv} in Zimmer {gn} im {go}n Stock"
    )


def _pages(rng: random.Random) -> Pair:
    (adjective, stem), (en, gn) = rng.choice(ADJECTIVES), parts.some(rng, 20, 1500)
    return parts.sentence(f"the {adjective} book has {en} pages", f"das {stem}e Buch hat {gn} Seiten")


def _age(rng: random.Random) -> Pair:
    who, (en, gn), (ec, gc) = (
        rng.choice([subject for subject in SUBJECTS if subject.person != "we"]),
        parts.some(rng, 2, 99),
        rng.choice(CITIES),
    )
    (eb, gb), (el, gl) = ("am", "bin") if who.person == "i" else ("is", "ist"), LIVE.of(who)
    return parts.sentence(
        f"{who.english} {eb} {en} years old and {el} in {ec}", f"{who.german} {gb} {gn} Jahre alt und {gl} in {gc}"
    )


def _built(rng: random.Random) -> Pair:
    (eb, gb), (ec, gc) = parts.described(rng, BUILDINGS, BUILDING_ADJECTIVES)[0], rng.choice(CITIES)
    ey, gy = parts.year(rng, 1100)
    return parts.sentence(f"{eb} in {ec} was built in {ey}", f"{gb} in {gc} wurde im Jahr {gy} gebaut")


def _living_since(rng: random.Random) -> Pair:
    who, (ec, gc), (en, gn) = rng.choice(SUBJECTS), rng.choice(CITIES), parts.some(rng, 2, 60)
    es, _, gs = rng.choice(SPANS[2:])
    have = HAVE.of(who)[0]
    ev, (_, gv) = rng.choice((("living", LIVE.of(who)), ("working", WORK.of(who))))
    return parts.sentence(
        f"{who.english} {have} been {ev} in {ec} for {en} {es}", f"{who.german} {gv} seit {gn} {gs} in {gc}"
    )


def _travel_in(rng: random.Random) -> Pair:
    who, (ec, gc), (en, gn) = rng.choice(SUBJECTS), rng.choice(CITIES), parts.some(rng, 2, 60)
    es, _, gs = rng.choice(SPANS[:5])
    ev, gv = TRAVEL.of(who)
    return parts.sentence(f"in {en} {es} {who.english} {ev} to {ec}", f"in {gn} {gs} {gv} {who.german} nach {gc}")


def _every_week(rng: random.Random) -> Pair:
    who, (ew, gw), (et, gt), (ee, ge) = (
        rng.choice(SUBJECTS),
        rng.choice(spoken.DAYS),
        parts.time(rng),
        rng.choice(ERRANDS),
    )
    ev, gv = GO.of(who)
    return parts.sentence(f"every {ew} at {et} {who.english} {ev} {ee}", f"jeden {gw} um {gt} {gv} {who.german} {ge}")


def _ticket(rng: random.Random) -> Pair:
    (ec, gc), (ep, gp), (en, gn) = rng.choice(CITIES), parts.price(rng, 400), parts.some(rng, 2, 20)
    return parts.sentence(
        f"the ticket to {ec} costs {ep}, and the journey takes {en} hours",
        f"die Fahrkarte nach {gc} kostet {gp}, und die Fahrt dauert {gn} Stunden",
    )


def _percent(rng: random.Random) -> Pair:
    (en, gn), (ec, gc) = parts.some(rng, 2, 99), rng.choice(CITIES)
    e, g = rng.choice((("visitors", "Besucher"), ("pupils", "Schüler"), ("guests", "Gäste"), ("workers", "Arbeiter")))
    return parts.sentence(f"{en} percent of the {e} come from {ec}", f"{gn} Prozent der {g} kommen aus {gc}")


def _working_hours(rng: random.Random) -> Pair:
    who, (e1, g1), (e2, g2), (ew, gw) = rng.choice(SUBJECTS), parts.time(rng), parts.time(rng), rng.choice(spoken.DAYS)
    ev, gv = WORK.of(who)
    return parts.sentence(
        f"on {ew} {who.english} {ev} from {e1} until {e2}", f"am {gw} {gv} {who.german} von {g1} bis {g2}"
    )


def _bus(rng: random.Random) -> Pair:
    (en, gn), (em, gm), (es, gs) = spoken.number(rng.randint(1, 300)), parts.some(rng, 2, 60), rng.choice(STOPS)
    return parts.sentence(
        f"bus number {en} goes {es} every {em} minutes", f"der Bus Nummer {gn} fährt alle {gm} Minuten {gs}"
    )


_WEIGHTS: dict[_Template, int] = {
    _bare_number: 4, _sum: 3, _train_leaves: 3, _train_arrives: 3, _train_question: 2, _costs: 3, _how_much: 2,
    _opens: 3, _open_until: 2, _closed: 2, _dated_action: 4, _today: 2, _now: 1, _born: 3, _need_for: 4, _distance: 2,
    _flight: 2, _event_begins: 2, _event_takes_place: 4, _inhabitants: 3, _there_are: 3, _traded: 4, _found: 3,
    _paid: 3, _telephone: 3, _temperature: 1, _please: 2, _room: 2, _pages: 2, _age: 2, _built: 2, _living_since: 2,
    _travel_in: 2, _every_week: 3, _ticket: 2, _percent: 1, _working_hours: 3, _bus: 1, _fragment: 1,
}  # fmt: skip
"""Templates with few combinations are drawn less often."""
_TEMPLATES = list(_WEIGHTS)
_CUMULATIVE = list(accumulate(_WEIGHTS.values()))
