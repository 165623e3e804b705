"""Names of people for the states of office tasks; many are the beginning of another, so that a
search by name matches several.
"""

from __future__ import annotations

import numpy as np

FIRST = (
    "Ada Adam Alan Alana Alex Alexa Amir Ana Anaya Ann Anna Ben Benita Bo Bruno Carl Carla Chen "
    "Clara Dan Dana Daniel Dora Elif "
    "Elin Ella Eva Evan Farid Finn Gia Hana Hanna Hugo Ida Ines Ivan Ivana Jan Jana Joan Joanna "
    "Jon Jonas Jun Kai Kaia Karl Karla "
    "Lea Lena Leo Leon Leona Lin Lina Mara Maria Mario Max Maxine Mei Mia Mika Mila Nils Nina Noa "
    "Noah Nora Omar Owen Paul Paula "
    "Ravi Rita Rosa Sam Samira Sara Sven Tara Theo Tim Timo Tina Uma Vera Victor Yan Yara Yusuf Zoe"
).split()
LAST = (
    "Abe Abel Adler Alves Amin Anders Anderson Bach Bacher Bauer Beck Becker Berg Berger Bianchi "
    "Blom Brand Brandt Braun Brown "
    "Browning Carter Castro Chan Chang Cole Coleman Costa Cruz Dahl Diaz Dias Dube Duran Eriks "
    "Eriksen Evans Fischer Ford Fox "
    "Franco Fuchs Garcia Gray Green Greene Haas Hall Hansen Hart Hartman Hill Hoff Hoffman Ito "
    "Jansen John Johns Johnson Kang "
    "Keller Khan Kim Kimura King Klein Kraus Lang Lange Larsen Lee Leeds Levi Levin Lima Lind "
    "Lindberg Lopez Lund Martin Martinez "
    "Mayer Mehta Meyer Mori Moritz Nair Nelson Novak Okada Olsen Ortiz Park Parker Patel Perez "
    "Perry Peters Petersen Pohl Popov "
    "Ramos Rao Reid Reyes Ricci Rich Richards Rob Roberts Robertson Rossi Roth Ruiz Sand Sanders "
    "Santos Sato Schmid Schmidt Shah "
    "Silva Singh Smith Smithson Sousa Stein Steiner Stone Suzuki Tan Tanaka Thomas Thompson Torres "
    "Vega Wagner Wang Ward Weber "
    "Weiss West Weston White Wong Wood Woods Wu Yamada Yang Young Zhang Zhao Zimmer"
).split()
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def people(rng: np.random.Generator, count: int) -> list[str]:
    """Draw different full names, at most 386,694; more than 14,322 have middle initials."""
    pairs = len(FIRST) * len(LAST)
    total = pairs if count <= pairs else pairs * (1 + len(_LETTERS))
    names = []
    for number in map(int, rng.choice(total, count, replace=False)):
        middle, pair = divmod(number, pairs)
        first, last = FIRST[pair // len(LAST)], LAST[pair % len(LAST)]
        names.append(f"{first} {_LETTERS[middle - 1]}. {last}" if middle else f"{first} {last}")
    return names


def address(name: str, number: int, domain: str) -> str:
    """Return a mail address for a person; different numbers make different addresses."""
    return f"{name.lower().replace('.', '').replace(' ', '.')}{number}@{domain}"
