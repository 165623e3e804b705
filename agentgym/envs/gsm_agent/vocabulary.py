"""Vocabulary of problems and documents, without number words."""

from __future__ import annotations


def _list(text: str) -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(","))


FIRST_NAMES = _list("""
    Adela, Amir, Anouk, Arlo, Aster, Basil, Bela, Bruno, Carmen, Cato, Celia, Chidi, Clara, Cyrus, Dalia, Dario, Delphine,
    Dimitri, Edda, Elio, Elsa, Emre, Esme, Farah, Felix, Fiona, Gavin, Gemma, Goran, Greta, Hakan, Hana, Hector, Hugo, Ida,
    Idris, Ines, Ivo, Jana, Jonas, Juno, Kai, Karim, Keiko, Kofi, Lara, Leif, Lena, Lucio, Magda, Malik, Marta, Milo, Mina,
    Nadia, Nils, Noor, Olga, Omar, Orla, Otis, Pablo, Petra, Quentin, Rafi, Ramona, Rosa, Rufus, Sadie, Selim, Signe, Sven,
    Tamar, Teo, Thora, Uma, Vera, Viktor, Wanda, Xenia, Yara, Yusuf, Zelda, Zoran
""")
LAST_NAMES = _list("""
    Abara, Adler, Almeida, Arslan, Bakker, Barros, Bellini, Bergman, Castro, Chand, Corvin, Dahl, Demir, Dobrev, Ekman,
    Engel, Falk, Farrow, Ferro, Fontaine, Garrido, Gould, Haddad, Hale, Horvat, Ibarra, Ito, Jansen, Jovic, Kaur, Keller,
    Koch, Kovac, Lindqvist, Lopez, Lund, Maalouf, Marsh, Mensah, Moreau, Moreno, Nagy, Novak, Oduya, Okafor, Olsen, Pavlov,
    Peretti, Pinto, Quade, Ramos, Rasmussen, Reyes, Rossi, Saito, Salazar, Schmid, Silva, Soto, Steiner, Takeda, Tanner,
    Thorne, Toth, Ueda, Urban, Valdez, Vance, Varga, Vogel, Weber, Winter, Yilmaz, Zeller, Ziegler
""")
NOUNS = _list("""
    lanterns, kites, candles, scarves, puzzles, marbles, notebooks, teacups, postcards, ribbons, baskets, whistles, puppets,
    bookmarks, seashells, muffins, pancakes, pumpkins, lemons, walnuts, tulips, seedlings, buttons, stickers, model ships,
    toy trains, bird feeders, jam jars, flower pots, clay bowls
""")
MODIFIERS = _list("""
    copper, scarlet, speckled, striped, woven, painted, amber, ivory, emerald, silver, golden, wooden, velvet, paper,
    glazed, dotted, crimson, turquoise, lavender, maroon, checkered, polished, rustic, tiny, giant, braided, folded,
    frosted, smoky, violet, orange, teal
""")
CONTAINERS = (
    ("crates", "crate"),
    ("boxes", "box"),
    ("bags", "bag"),
    ("trays", "tray"),
    ("bundles", "bundle"),
    ("drawers", "drawer"),
    ("sacks", "sack"),
    ("cartons", "carton"),
)
PLACES = _list("""
    in the attic, in the cellar, in the workshop, on the upper shelf, on the lower shelf, from the morning delivery, from
    the evening delivery, by the front window, in the garden shed, from the weekend market, behind the counter, in the
    storage room
""")
EVENTS = _list("""
    harvest fair, spring market, village festival, school bazaar, craft show, charity sale, summer carnival, night market
""")
PARTINGS = (
    ("at the start of the month", "given away"),
    ("before the sale", "sold to visitors"),
    ("unpacked that month", "sent back"),
    ("made that month", "handed to neighbours"),
)
ROLES = (
    "organiser",
    "collector",
    "shopkeeper",
    "stallholder",
    "caretaker",
    "host",
    "member in charge",
    "person responsible",
)
TOWNS = _list("""
    Alderwick, Brackenford, Coldharbour, Dunmere, Eastvale, Fernhollow, Glenrock, Hartwell, Ivybridge, Kestrelton, Larkspur,
    Millbrook, Northgate, Oakhurst, Pinecrest, Quarrytown, Ravensworth, Stonebridge, Thistledown, Underhill, Westbourne,
    Yarrowfield
""")
MONTHS = _list("""
    January, February, March, April, May, June, July, August, September, October, November, December
""")

TOPICS = (
    "People kept asking about the {phrase}.",
    "This concerns the {phrase}.",
    "There has been some talk about the {phrase}.",
    "The matter of the {phrase} is settled herewith.",
    "Somebody wanted to know about the {phrase}.",
    "Notes on the {phrase} follow.",
)
"""Topics of a record, without numbers."""
DOCUMENT_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "inventory sheet": (
        ("Inventory sheet, {town}, {month}", "{month}, {town}: stock on hand"),
        (
            "Shelves were dusted before the count and every label was checked against the ledger.",
            "Damaged pieces had been set aside beforehand and are not part of this sheet.",
            "The sheet was pinned beside the door so that nobody had to ask.",
            "Handwriting on the older pages is faded, so this page was copied out again.",
        ),
    ),
    "letter": (
        ("{town}, {month}. Dear friend,", "A letter from {town}, {month}"),
        (
            "The weather has been kind, and the lane behind the house is full of blossom.",
            "You asked how things stand here, so let me tell you what I know.",
            "Please give my regards to everyone at home.",
            "I shall write again as soon as the roads are dry.",
        ),
    ),
    "ledger note": (
        ("Ledger note, {town}, {month}", "Note in the ledger of {month}, {town}"),
        (
            "The entry was made in ink and countersigned the same evening.",
            "Earlier pages deal with other matters and are not repeated here.",
            "A blot on the margin has been explained to the auditor.",
            "The clerk compared the entry with the slips kept in the tin.",
        ),
    ),
    "newsletter": (
        ("The {town} newsletter, {month}", "News from {town}, {month} issue"),
        (
            "Readers have kept our letterbox busy, and we thank them for it.",
            "The brass band rehearses in the hall again, and visitors are welcome.",
            "Our reporter walked around with a notebook and asked a few questions.",
            "More stories will follow in the next issue.",
        ),
    ),
    "diary page": (
        ("Diary, {town}, {month}", "{month}. Notes from a quiet week in {town}"),
        (
            "Rain drummed on the roof most of the day, so there was time to put things in order.",
            "Tea was late because everybody wanted to talk.",
            "It felt good to write things down before they are forgotten.",
            "The cat slept on the papers and had to be moved.",
        ),
    ),
    "receipt": (
        ("Receipt, {town}, {month}", "{town} trading post, {month}: customer copy"),
        (
            "Goods were inspected at the counter and wrapped in brown paper.",
            "Please keep this slip, since exchanges need proof of purchase.",
            "The till was balanced in the evening without a difference.",
            "Thank you for visiting, and come again.",
        ),
    ),
    "meeting minutes": (
        (
            "Minutes of the committee, {town}, {month}",
            "{town} committee, {month}: summary of the discussion",
        ),
        (
            "The chair opened the meeting and the previous minutes were approved.",
            "A short discussion followed, and nobody raised an objection.",
            "Coffee was served while the papers went around the table.",
            "The next meeting will be announced on the notice board.",
        ),
    ),
    "delivery slip": (
        ("Delivery slip, {town} depot, {month}", "{month}, goods office at {town}"),
        (
            "The driver arrived early and waited by the gate.",
            "Straps and blankets were returned to the depot afterwards.",
            "Nothing was broken on the way, as far as could be seen.",
            "The slip was stamped and filed with the others.",
        ),
    ),
}
