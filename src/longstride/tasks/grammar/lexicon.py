"""The words of the grammar: things, people, verbs and places with what their German forms depend on."""

from __future__ import annotations

from dataclasses import dataclass

from longstride.tasks.grammar.spoken import Pair


@dataclass(frozen=True)
class Noun:
    """A thing, in singular and plural; the German plural is the same in nominative and accusative."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str
    """m, f or n"""


@dataclass(frozen=True)
class Subject:
    """Who does something, and how verbs follow: first person singular, third person singular, or plural."""

    english: str
    german: str
    person: str
    """i, it or we"""


@dataclass(frozen=True)
class Verb:
    """A verb in the present; the German one takes the accusative or a place."""

    english: str
    english_third: str
    german: str
    """first person singular; the plural is this and n"""
    german_third: str

    def of(self, subject: Subject) -> Pair:
        """The forms that agree with a subject."""
        english = self.english_third if subject.person == "it" else self.english
        return english, {"i": self.german, "it": self.german_third, "we": self.german + "n"}[subject.person]


def _nouns(table: str) -> list[Noun]:
    return [Noun(*(cell.strip() for cell in line.split(","))) for line in table.strip().splitlines()]


THINGS = _nouns("""
book, books, Buch, Bücher, n
apple, apples, Apfel, Äpfel, m
lamp, lamps, Lampe, Lampen, f
chair, chairs, Stuhl, Stühle, m
table, tables, Tisch, Tische, m
shirt, shirts, Hemd, Hemden, n
bicycle, bicycles, Fahrrad, Fahrräder, n
bag, bags, Tasche, Taschen, f
cup, cups, Tasse, Tassen, f
clock, clocks, Uhr, Uhren, f
flower, flowers, Blume, Blumen, f
picture, pictures, Bild, Bilder, n
letter, letters, Brief, Briefe, m
key, keys, Schlüssel, Schlüssel, m
bottle, bottles, Flasche, Flaschen, f
cake, cakes, Kuchen, Kuchen, m
coat, coats, Mantel, Mäntel, m
newspaper, newspapers, Zeitung, Zeitungen, f
knife, knives, Messer, Messer, n
ball, balls, Ball, Bälle, m
egg, eggs, Ei, Eier, n
stamp, stamps, Briefmarke, Briefmarken, f
hat, hats, Hut, Hüte, m
blanket, blankets, Decke, Decken, f
""")
SHOPS = _nouns("""
shop, shops, Geschäft, Geschäfte, n
museum, museums, Museum, Museen, n
library, libraries, Bibliothek, Bibliotheken, f
bank, banks, Bank, Banken, f
pharmacy, pharmacies, Apotheke, Apotheken, f
bakery, bakeries, Bäckerei, Bäckereien, f
restaurant, restaurants, Restaurant, Restaurants, n
market, markets, Markt, Märkte, m
""")
BUILDINGS = _nouns("""
house, houses, Haus, Häuser, n
bridge, bridges, Brücke, Brücken, f
church, churches, Kirche, Kirchen, f
school, schools, Schule, Schulen, f
museum, museums, Museum, Museen, n
station, stations, Bahnhof, Bahnhöfe, m
tower, towers, Turm, Türme, m
hotel, hotels, Hotel, Hotels, n
castle, castles, Schloss, Schlösser, n
""")
EVENTS = _nouns("""
meeting, meetings, Besprechung, Besprechungen, f
concert, concerts, Konzert, Konzerte, n
lecture, lectures, Vorlesung, Vorlesungen, f
course, courses, Kurs, Kurse, m
party, parties, Feier, Feiern, f
exam, exams, Prüfung, Prüfungen, f
wedding, weddings, Hochzeit, Hochzeiten, f
""")
ADJECTIVES: list[Pair] = [
    ("red", "rot"),
    ("blue", "blau"),
    ("green", "grün"),
    ("yellow", "gelb"),
    ("black", "schwarz"),
    ("white", "weiß"),
    ("brown", "braun"),
    ("new", "neu"),
    ("old", "alt"),
    ("small", "klein"),
    ("big", "groß"),
    ("beautiful", "schön"),
    ("cheap", "billig"),
    ("heavy", "schwer"),
]
BUILDING_ADJECTIVES: list[Pair] = [("old", "alt"), ("new", "neu"), ("small", "klein"), ("big", "groß")]
SUBJECTS = [
    Subject("I", "ich", "i"),
    Subject("we", "wir", "we"),
    Subject("he", "er", "it"),
    Subject("she", "sie", "it"),
    Subject("they", "sie", "we"),
    Subject("my brother", "mein Bruder", "it"),
    Subject("my sister", "meine Schwester", "it"),
    Subject("our neighbour", "unser Nachbar", "it"),
    Subject("the teacher", "der Lehrer", "it"),
    Subject("the children", "die Kinder", "we"),
    Subject("my parents", "meine Eltern", "we"),
    Subject("her uncle", "ihr Onkel", "it"),
    Subject("Anna", "Anna", "it"),
    Subject("Paul", "Paul", "it"),
    Subject("Maria", "Maria", "it"),
    Subject("Martin", "Martin", "it"),
]
NAMES = ["Anna", "Paul", "Maria", "Martin", "Lena", "Peter"]
CITIES: list[Pair] = [
    (n, n) for n in ("Berlin", "Hamburg", "Leipzig", "Dresden", "Bonn", "Kassel", "Bremen", "Paris", "London")
]
CITIES += [("Munich", "München"), ("Cologne", "Köln"), ("Vienna", "Wien"), ("Rome", "Rom"), ("Zurich", "Zürich")]
CITIES += [("Nuremberg", "Nürnberg"), ("Prague", "Prag"), ("Brussels", "Brüssel"), ("Warsaw", "Warschau")]
ACTIONS = [
    Verb("buy", "buys", "kaufe", "kauft"),
    Verb("need", "needs", "brauche", "braucht"),
    Verb("sell", "sells", "verkaufe", "verkauft"),
    Verb("order", "orders", "bestelle", "bestellt"),
    Verb("repair", "repairs", "repariere", "repariert"),
    Verb("look for", "looks for", "suche", "sucht"),
    Verb("bring", "brings", "bringe", "bringt"),
]
DEEDS: list[Pair] = [("bought", "gekauft"), ("sold", "verkauft"), ("ordered", "bestellt"), ("repaired", "repariert")]
FINDS: list[Pair] = [("found", "gefunden"), ("lost", "verloren"), ("forgot", "vergessen")]
HAVE = Verb("have", "has", "habe", "hat")
LIVE, WORK = Verb("live", "lives", "wohne", "wohnt"), Verb("work", "works", "arbeite", "arbeitet")
GO, TRAVEL = Verb("go", "goes", "gehe", "geht"), Verb("travel", "travels", "fahre", "fährt")
PURPOSES: list[Pair] = [
    ("for the party", "für die Feier"),
    ("for the weekend", "für das Wochenende"),
    ("for the journey", "für die Reise"),
    ("for the new kitchen", "für die neue Küche"),
    ("for the school", "für die Schule"),
    ("for the garden", "für den Garten"),
]
ROOMS: list[Pair] = [
    ("in the kitchen", "in der Küche"),
    ("in the garden", "im Garten"),
    ("in the cellar", "im Keller"),
    ("in the office", "im Büro"),
    ("in the library", "in der Bibliothek"),
    ("in the classroom", "im Klassenzimmer"),
    ("on the table", "auf dem Tisch"),
    ("under the bed", "unter dem Bett"),
]
ERRANDS: list[Pair] = [
    ("to school", "zur Schule"),
    ("to work", "zur Arbeit"),
    ("to the market", "zum Markt"),
    ("to the doctor", "zum Arzt"),
    ("to the library", "zur Bibliothek"),
    ("to the swimming pool", "zum Schwimmbad"),
]
STOPS: list[Pair] = [
    ("to the station", "zum Bahnhof"),
    ("to the airport", "zum Flughafen"),
    ("to the town hall", "zum Rathaus"),
    ("to the university", "zur Universität"),
    ("to the stadium", "zum Stadion"),
]
SPANS: list[tuple[str, str, str]] = [
    ("minutes", "Minuten", "Minuten"),
    ("hours", "Stunden", "Stunden"),
    ("days", "Tage", "Tagen"),
    ("weeks", "Wochen", "Wochen"),
    ("months", "Monate", "Monaten"),
    ("years", "Jahre", "Jahren"),
]
ARTICLES = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das")}
"""by gender: nominative, accusative"""
