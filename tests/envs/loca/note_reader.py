"""Keyword-based reader of order notes, independent of the package."""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
PRODUCT = re.compile(r"Gift Card|Assembly|[A-Z][a-z]+ \d{3,}")
COUNT = re.compile(rf"\b(?:{'|'.join(NUMBERS)}|\d+)\b")
IDLE = re.compile(
    # Sentences about other orders.
    r"[Ll]ast order|[Ff]ormer|first flat|Last year|in spring|years ago|[Ll]ast month|Once you|last May|old order|In summer"
    r"|proves itself"
    r"|next year|second house|daughter marry|Some day|autumn|Perhaps|Keep the plans|board decides|brother|neighbours"
    r"|her own order"
    r"|[Oo]ur street|neighbour complained|My aunt|school|Brown|her order|[Mm]y parents|You know"
    # No change.
    r"|right as it|no slip|Nothing changes|asked on|begin at once|stay with|not leave out|Yes, it is|forgotten|exactly as|is right:"
    r"|not one more"
    r"|thought of|talked about|would cut|For a moment|tempting|suggested|Against all|was talk|nearly (?:wrote|doubled)|voted"
)
WITHDRAWN = re.compile(
    r"please cancel|not send any of this|I withdraw|Cancel the entire|please stop|Forget this order|and not an order"
    r"|clicked on buy"
    r"|take back this|Nothing on this|everything elsewhere|order is off|whole thing off|I am cancelling|have to cancel"
    r"|hereby"
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
SWAP = re.compile(r"swap their|other way round|Exchange the|the reverse|around\.$")
TRADE = re.compile(r"^(?:Replace|In place of|Instead of|Turn|Shift)|and just as many more")
TWICE = re.compile(r"double|twice|twin sister|times two")
LESS = re.compile(
    r"fewer|off the number|can be dropped|Reduce|subtract|too many|Lower|lends us|give up|hold back|goes down"
)
MORE = re.compile(
    r"more|Please add|please add|Raise|another|in addition|additional|Increase|extra|goes up"
)


def amended(order: Mapping[str, int], note: str) -> dict[str, int]:
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
        elif re.match("With each|Count|Whatever the number", text):
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
    r"not send me any mails|No newsletter|any mailing list|send no mailings|full enough|object to advert"
    r"|out of your mailings|Do not add me|no mails afterwards|send nothing else|any advertising|taken off your"
    r"|certainly no mails|spare me yours|No offers|by mistake; I|send me nothing|a welcome mail as|do not send any"
    r"|forbids|rather get no|No, better not|send none|none from you|leave my address|such mails never"
    r"|warns me|hasty|by myself, without|not your mails"
)
ALLOWED = re.compile(
    r"do send me a mail|like your news|Please put me on|address is closed|a mail is best|do not mind adv|wrote in spring"
    r"|mails are welcome|feel free|Send your mails not|leaflets, but|offers by mail|got a code|on purpose|add this one"
    r"|do not have to spare|do send me your|read your news|Forget my|codes come|get your mails|tells me about"
    r"|do want mails|now and then|bad mood"
)


def declined(note: str) -> bool:
    wishes = [
        bool(DECLINED.search(sentence))
        for sentence in re.split(r"(?<=[.!?]) ", note)
        if DECLINED.search(sentence) or ALLOWED.search(sentence)
    ]
    return wishes[-1:] == [True]
