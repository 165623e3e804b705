"""Keyword-based reader of order notes, independent of the package."""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
PRODUCT = re.compile(r"Gift Card|Assembly|[A-Z][a-z]+ \d{3,}")
COUNT = re.compile(rf"\b(?:{'|'.join(NUMBERS)}|\d+)\b")
IDLE = re.compile(
    # Other orders: earlier, later, of other people.
    r"last order|former|first flat|Last year|in spring|years ago|last month|Once you|last May|old order|In summer"
    r"|proves itself"
    r"|next year|second house|daughter marry|Some day|autumn|Perhaps|Keep the plans|board decides|brother|neighbours"
    r"|her own order"
    r"|our street|My aunt|school|Brown|her order|my parents|You know"
    # No change.
    r"|right as it|no slip|Nothing changes|asked on|begin at once|stay with|not leave out|Yes, it is|forgotten"
    r"|not one more"
    r"|thought of|talked about|would cut|For a moment|tempting|suggested|Against all|was talk|nearly wrote|voted"
)
WITHDRAWN = re.compile(
    r"please cancel|not make any of this|I withdraw|Cancel the entire|please stop|Forget this order|and not an order"
    r"|clicked on buy"
    r"|take back this|Nothing on this|everything elsewhere|order is off|whole thing off|I am cancelling|is void"
    r"|Hereby"
    r"|no longer want anything|delete this order|better cancel|make any of this order"
)
RESTORED = re.compile(
    r"No, wait|persuaded me to keep|cancellation is off|cancellation back|furniture, so the order stays"
    r"|ignore the cancellation"
    r"|time to reconsider|no to cancelling|Do not cancel after|no longer giving up"
)
BACK = re.compile(
    r"changes above|No, leave all|take back what|all of the above|asked you to change|all changes up|want the lines"
    r"|changes up to here"
)
UNDO = re.compile(
    r"on the order, please|on the order\.$|order\.$|order says\.$|the order, whatever"
)
ALONE = re.compile(
    r"nothing but|Everything except|all the rest|only thing|alone will do|All that is left"
)
SWAP = re.compile(r"swap their|other way round|Exchange the|the reverse|about\.$")
TRADE = re.compile(r"^(?:Replace|In place of|Turn|Shift)|piece by piece|less and just")
TWICE = re.compile(r"double|twice|twin sister|times two")
LESS = re.compile(
    r"fewer|off the number|can be dropped|Reduce|subtract|too many|Lower|lends us|give up|hold back|goes down"
)
MORE = re.compile(
    r"more|Please add|please add|Raise|another|in addition|additional|Increase|extra|goes up"
)


def amended(order: Mapping[str, int], note: str) -> dict[str, int]:
    """Return the pieces of an order after its note."""
    now, off = dict(order), False
    for sentence in re.split(r"(?<=[.!?]) ", note):
        names = PRODUCT.findall(sentence)
        if not names:
            if RESTORED.search(sentence):
                off = False
            elif BACK.search(sentence):
                now = dict(order)
            elif WITHDRAWN.search(sentence):
                off = True
        elif not IDLE.search(sentence):
            change(now, order, sentence, names)
    return {name: 0 if off else count for name, count in now.items()}


def change(now: dict[str, int], order: Mapping[str, int], text: str, names: list[str]) -> None:
    """Return the pieces that a sentence changes."""
    word = COUNT.search(re.sub("the landlord has one|an old one", "", PRODUCT.sub("", text)))
    count = (
        0 if word is None else NUMBERS.index(word[0]) + 1 if word[0] in NUMBERS else int(word[0])
    )
    first, second = names[0], names[-1]
    if first != second:
        if SWAP.search(text):
            now[first], now[second] = now[second], now[first]
        elif TRADE.search(text):
            now[first], now[second] = now[first] - count, now[second] + count
        elif re.match("With each|Count|What holds", text):
            now[second] = now[first]
        else:
            now[first] = now[second]
    elif ALONE.search(text):
        now.update({name: 0 for name in now if name != first})
    elif TWICE.search(text):
        now[first] *= 2
    elif word is None:
        now[first] = order[first] if UNDO.search(text) else 0
    elif LESS.search(text):
        now[first] -= count
    else:
        now[first] = now[first] + count if MORE.search(text) else count


DECLINED = re.compile(
    r"not write to me by|No newsletter|not wish to be|this delivery only|full enough|object to advert"
    r"|out of your mailings|Do not add me"
    r"|hear nothing|and nothing else|must not get|to be forgotten|Apart from the parcel|too many mails|No offers"
    r"|by mistake; I|once the book"
    r"|Do not greet|do not send any|forbids|rather get no|No, better not|no mails after|none from you"
    r"|leave my address|such mails never"
    r"|warns me|hasty|by myself, without|not your mails"
)
ALLOWED = re.compile(
    r"Please do write|like your news|Put me on|gets no mail any|a mail is best|do not mind adv|wrote in spring"
    r"|mails are welcome|feel free"
    r"|to my office|leaflets, but|offers by mail|got a code|on purpose|add this one|spare me your adv|do write to me"
    r"|read your news"
    r"|Forget my|codes come|get your mails|tells me of|another shop|now and then|bad mood"
)


def declined(note: str) -> bool:
    """Return whether a note declines mails."""
    wishes = [
        bool(DECLINED.search(sentence))
        for sentence in re.split(r"(?<=[.!?]) ", note)
        if DECLINED.search(sentence) or ALLOWED.search(sentence)
    ]
    return wishes[-1:] == [True]
