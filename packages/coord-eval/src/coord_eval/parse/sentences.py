"""Names in sentences: which of the words before (or after) numbers name what is there, in any wording.

A clause has a subject, a verb and the rest. If the subject names something, it is the name (`The dog can be found at`);
if it is only a pronoun, the image, the box or the speaker, the rest names it (`I can see a dog at`). Words that leave
this open name nothing.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DETERMINERS = _words(
    "a an the this that these those his her its their my your another some several many both all only "
    "namely however therefore thus hence unfortunately whose"
)
_COUNTS = _words("one two three four five six seven eight nine ten multiple")
_PEOPLE = _words("i you we")
_PLACES = _words(
    "box boxes bbox bboxes bounding box_2d bbox_2d coordinate coordinates coords location position region "
    "area rectangle point corner corners center centre pixel pixels center-point space normalized normalised edge edges"
)
"""Nouns for where something is."""
_PREPOSITIONS = _words("in on at to under behind beside near above below next between inside around")
_PRONOUNS = _words("it its they them he she him her")
_CERTAIN_PLACES = _words("bounding bbox bboxes box_2d bbox_2d coordinates coords")
_LINKS = _words(
    "of for at in on to from by with within between and or as up around about approximately roughly near along inside "
    "over approx ca here there also now just clearly exactly via respectively so then which who"
)
_VERBS = _words("is are was were am be been being has have had")
_MODALS = _words("can could may might must should would will do does did")
_VERBS_IN_A_CLAUSE = _words(
    "spans span covers cover occupies occupy appears appear lies lie sits sit stands stand starts start begins begin "
    "extends extend runs reaches stretches contains contain shows show depicts displays features includes encloses "
    "surrounds marks represents corresponds enclose surround indicates fills takes see sees goes ranges "
    "measures belongs detects finds locates identifies seems seem wants needs"
)
"""Verbs that may be nouns: they count after an article or a pronoun, or before a word that links."""
_PARTICIPLES = _words(
    "located positioned found situated placed seen visible shown detected identified marked outlined bounded enclosed "
    "defined given spotted centered centred listed described estimated find detect spot identify locate notice"
)
_FOREIGN_VERBS = _words(
    "befindet befinden ist liegt sind liegen est trouve trouvent sont est\u00e1 est\u00e1n esta encuentra encuentran "
    "s\u00e3o fica trova trovano \u00e8 \u00e9 \u043d\u0430\u0445\u043e\u0434\u0438\u0442\u0441\u044f "
    "\u043d\u0430\u0445\u043e\u0434\u044f\u0442\u0441\u044f"
    " \u0440\u0430\u0441\u043f\u043e\u043b\u043e\u0436\u0435\u043d"
    " \u0440\u0430\u0441\u043f\u043e\u043b\u043e\u0436\u0435\u043d\u0430"
    " \u0440\u0430\u0441\u043f\u043e\u043b\u043e\u0436\u0435\u043d\u043e"
)
_NO_NAMES = (
    _DETERMINERS
    | _COUNTS
    | _PEOPLE
    | _PLACES
    | _LINKS
    | _VERBS
    | _MODALS
    | _PARTICIPLES
    | _words(
        "it he she they them image picture photo photograph scene screenshot frame answer result output object objects "
        "element item target response model first second third fourth fifth sixth last next other following requested "
        "predicted final approximate corresponding sure certain confident yes no ok okay label class name query phrase "
        "asked mentioned described question se sich si left right top bottom upper lower side ones sorry format json "
        "looks look seems like moved cursor pointer background foreground user"
    )
)
"""Words that name no object by themselves."""
_LEADS = _words(
    "in on at after from based as for to upon looking sure yes okay ok certainly here next first finally second third "
    "of additionally also then now according given note well great absolutely similarly meanwhile while likewise"
)
"""First words of what may stand before a clause, up to a comma."""
_IMPERATIVE = re.compile(
    r"(?:to\s+|please\s+|let\s+me\s+)?(?:click|tap|press|select|hover|move|place|put|double-click|clicking|tapping)\b",
    re.IGNORECASE,
)
_CONJUNCTION = re.compile(
    r"(?:and|but|while|whereas|then|or|plus|where|with|next\s+to\s+it|beside\s+it|(?:it\s+)?is)\b[\s,]+(?=\S)",
    re.IGNORECASE,
)
_BOUNDARY = re.compile(
    r"(?<=\s)(?:[^\W\d]\w+[^\W\d_]|(?!vs|ca|cf|no)[a-z]{2})[.!?]\s+(?=[A-Z])|^\w{3,14}[.!]\s+(?=[A-Z])|;\s+|:\s+(?=\w)"
)
"""The end of a sentence before another; a word of two letters may be an abbreviation."""
_CLAUSE = re.compile(r",?\s+(?:and|but|while|whereas|that)\s+|,\s+")
_QUOTED = re.compile(
    r"[\"\u201c\u00ab]([^\"\u201c\u201d\u00ab\u00bb]+)[\"\u201d\u00bb]|(?<!\w)['\u2018]([^'\u2018\u2019]+)['\u2019](?!\w)|\[([^\[\]]*[a-z][^\[\]]*)\]"
)
_OF_PLACE = re.compile(
    r".*\b(?:(?:bounding\s+box(?:es)?|bbox(?:es)?|box_2d|bbox_2d|coordinates?|coords|locations?|positions?)|(?:the|its|an?)\s+(?:\w+\s+)?"
    r"(?:box(?:es)?|region|area|point|rectangle|cent(?:er|re)|corners?))(?:\s*\([^()]*\))?(?:\s+(?:coordinates?|format))?"
    r"\s+(?:of|for|around|containing|enclosing|(?:covered|occupied|bounded)\s+by)\s+(.+)",
    re.IGNORECASE | re.DOTALL,
)
_PLACE_FOR = re.compile(
    r"(?:(?:the\s+)?(?:box|region|area|rectangle|point)\s+)?(?:for|around|covering|enclosing|containing|surrounding|showing)\s+(?:the|an?)\s",
    re.IGNORECASE,
)
_PLACE_OF = re.compile(
    r"(.+?)(?:['\u2019]s(?:\s+(?:\w+\s+)?(?:box(?:es)?|coordinates?|location|position|region|cent(?:er|re)))?"
    r"|\s+(?:bounding\s+box(?:es)?|bbox(?:es)?|coordinates?))",
    re.IGNORECASE | re.DOTALL,
)
_IN_IMAGE = re.compile(
    r"\s+(?:in|within|of|on)\s+(?:the|this)\s+(?:image|picture|photo(?:graph)?|scene|screenshot|frame)\b[\s,.]*$",
    re.IGNORECASE,
)
_FOREIGN_ARTICLE = re.compile(
    r"(?:(?:und|et|y|e|\u0438)\s+)?(?:der|die|das|den|dem|ein|eine|les?|la|l['\u2019]|une?|el|los|las|una|os?|as?|uma?|il|lo|gli|i)\b\s*",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    rf"begrenzungsrahmen\s+(?:f\u00fcr|des|der)\s+(.+)|(?:und|et|y|e|hay|il\s+y\s+a|c'\u00e8)\s+(?={_FOREIGN_ARTICLE.pattern})(.+?)"
    r"(?:\s+(?:en|\u00e0|bei|em|a|in))?"
    r"|((?:der|die|das|le|la|el|los|las|il|lo|o)\s+.+?)\s+(?:bei|en|\u00e0|em)",
    re.IGNORECASE,
)
"""Fragments in German, French, Spanish, Portuguese and Italian."""
_CJK = "\u3040-\u30ff\u4e00-\u9fff"
_EAST_ASIAN = re.compile(
    r"(?:\u5728?[\u56fe\u753b\u7167][\u4e2d\u50cf\u7247\u9762\u91cc]{1,2}(?:\u7684)?(?:[\u5de6\u53f3\u4e0a\u4e0b\u4e2d][\u4fa7\u8fb9\u65b9\u95f4\u90e8])?)?"
    rf"(?:\u6709(?:\u4e00[\u53ea\u4e2a\u8f86\u4f4d\u6761\u5f20\u628a\u540d])?(.+?)[,\uff0c]\s*(?:\u5750\u6807[\u4e3a\u662f]?|\u4f4d\u4e8e|\u5904\u4e8e)"
    r"|(.+?)(?:\u4f4d\u4e8e|\u5904\u4e8e|\u306e(?:\u5ea7\u6a19|\u4f4d\u7f6e)|\u7684(?:\u5750\u6807|\u4f4d\u7f6e|\u8fb9\u754c\u6846))[\u662f\u4e3a\u306f]?"
    rf"|(.*[{_CJK}])(?:\u5728|\u662f|\u306f|\u304c))"
)
"""Sentences in Chinese and Japanese."""
_NEAR_IT = re.compile(
    r"\s+(?:near(?:by)?|beside|behind|under|above|below|next\s+to|in\s+front\s+of|around|on|with)\s+(?:it|them|him|her)$",
    re.I,
)
_TAIL = _LINKS | _VERBS | _DETERMINERS | _PARTICIPLES | _PLACES | _words("move go click starts begins it can could")
"""Words that may stand between a name and the numbers."""
_SIGNS = (
    _VERBS | _FOREIGN_VERBS | _MODALS | _VERBS_IN_A_CLAUSE | _PARTICIPLES | _CERTAIN_PLACES | _PEOPLE | _words("at")
)


_PLACE_WORDS = (  # in German and the Romance languages too
    _LINKS
    | _DETERMINERS
    | _VERBS
    | _CERTAIN_PLACES
    | _words(
        "box boxes location position region point center centre corner coordinate pixel predicted final 2d "
        "normalized normalised approximate corresponding format it bei auf en em"
    )
)
_FIRST = (_LEADS | _LINKS | _words("both but")) - {"a"}


def _lower(word: str) -> str:
    word = word.strip("\"'\u201c\u201d\u2018\u2019.,;:!?()[]*").lower()
    return re.split("['\u2019]", word)[0]


def is_empty(text: str) -> bool:
    """Return whether no word of a text can name an object."""
    return all(word in _NO_NAMES or not any(map(str.isalpha, word)) for word in map(_lower, text.split()))


def names_only_place(text: str) -> bool:
    """Return whether words say no more than that a box or a point follows: `its bounding box (x1, y1, x2, y2) is`."""
    words = re.sub(r"\([a-z0-9_,\s]+\)", "", text.lower()).split()
    return all(word.strip(",.:") in _PLACE_WORDS for word in words)


def name_in_sentence(text: str) -> str | None:
    """Return the name that a sentence gives to what it places, "" if it gives none; None if the text is no sentence.

    Example:
        >>> name_in_sentence("In this image, you can see a dog at"), name_in_sentence("The dog's bounding box is")
        ('dog', 'dog')
        >>> name_in_sentence("It is at"), name_in_sentence("a man in a red hat")
        ('', None)
    """
    if found := _EAST_ASIAN.fullmatch(text):
        return str(found[found.lastindex or 0]).strip()
    lowered = [_lower(word) for word in text.split()]
    if _FOREIGN_VERBS.isdisjoint(lowered) and (found := _FOREIGN.fullmatch(text)):
        return _without_foreign_article(found[found.lastindex or 0].strip())
    first = lowered[0] if lowered else ""
    if (
        _SIGNS.isdisjoint(lowered)
        and not (first in _FIRST and text[0].isupper())
        and not _IMPERATIVE.match(text)
        and not _PLACE_OF.fullmatch(_IN_IMAGE.sub("", text))
        and not _PLACE_FOR.match(text)
    ):
        return None
    ends = [0, *(found.end() for found in _BOUNDARY.finditer(text)), len(text)]
    for begin, end in zip(ends[-2::-1], ends[:0:-1], strict=True):
        if not is_empty(sentence := text[begin:end]):
            quoted = list(_QUOTED.finditer(sentence))
            if len(quoted) == 1 and is_empty((sentence[quoted[0].end() :].split() or [""])[0]):
                return str(quoted[0][quoted[0].lastindex or 0])
            name = _name_in_clause(_last_clause(sentence))
            if name or _PRONOUNS.isdisjoint(map(_lower, sentence.split())):  # else the sentence before says who it is
                return name
    return ""


def _verb(words: list[str]) -> int | None:
    """Return the place of the verb of a clause, which does not belong to a relative one."""
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        linked = not following or following in _LINKS or following in _DETERMINERS or following[:1].isdigit()
        if i and words[i - 1] in ("who", "which", "that") and i > 1:
            continue
        if (
            word in _VERBS
            or word in _FOREIGN_VERBS
            or (word in _MODALS and following in (_VERBS | _PARTICIPLES | _VERBS_IN_A_CLAUSE))
            or (word in _VERBS_IN_A_CLAUSE and (linked or words[0] in _DETERMINERS))
            or (word in _PARTICIPLES and i and linked)
        ):
            return i
    return None


def _has_verb(text: str) -> bool:
    return _verb([_lower(word) for word in text.split()]) is not None


def _last_clause(sentence: str) -> str:
    """Return the last of several clauses, without what stands before it up to a comma."""
    for cut in reversed(list(_CLAUSE.finditer(sentence))):
        before, after = sentence[: cut.start()], sentence[cut.end() :]
        first = _lower(after.split()[0]) if after.split() else ""
        lead = is_empty(before) or _has_verb(before) or _lower(before.split()[0]) in _LEADS
        apart = first in _DETERMINERS or _has_verb(after)
        if lead and apart and first not in (_VERBS | _LINKS | _PARTICIPLES | _MODALS) - {"there"}:
            return after
    return sentence


def _name_in_clause(clause: str) -> str:
    """Return the subject of a clause if it names something, else what the rest names."""
    foreign = False
    while conjunction := _CONJUNCTION.match(clause):
        clause = clause[conjunction.end() :]
    while words := clause.split():
        lowered = [_lower(word) for word in words]
        if lowered[0] in _PEOPLE or _IMPERATIVE.match(clause):
            named = [i for i, word in enumerate(lowered) if i and (word in _DETERMINERS | _COUNTS or word.isdigit())]
            clause = " ".join(words[named[0] if named else _last_link(lowered) :])
            continue
        if (i := _verb(lowered)) is None:
            break
        foreign |= lowered[i] in _FOREIGN_VERBS
        subject, following = " ".join(words[:i]), lowered[i + 1 : i + 2]
        inverted = lowered[0] in _PREPOSITIONS and following and following[0] in _DETERMINERS | _COUNTS
        if not (inverted or is_empty(subject)):
            clause = subject
            break
        i += 1
        while i < len(words) and lowered[i] in _VERBS | _MODALS | _PARTICIPLES | _VERBS_IN_A_CLAUSE:
            i += 1
        clause = " ".join(words[i:])
    return _bare_name(clause, foreign)


def _without_foreign_article(name: str) -> str:
    article = _FOREIGN_ARTICLE.match(name)
    return name[article.end() :] if article else name


def _last_link(lowered: list[str]) -> int:
    return next((i + 1 for i in range(len(lowered) - 1, 0, -1) if lowered[i] in _LINKS), 1)


def _without_tail(name: str) -> str:
    """Return words without the last ones that lead to the numbers: `cow at position`, `dog bounding box`."""
    words = name.split()
    lowered = [_lower(word) for word in words]
    end = len(words)
    while end and (lowered[end - 1] in _TAIL or not lowered[end - 1]):
        end -= 1
    nouns = _PLACES - _CERTAIN_PLACES
    while end < len(words) and lowered[end] in nouns:  # the box of `sentry box`
        end += 1
    return " ".join(words[:end])


def _bare_name(name: str, foreign: bool = False) -> str:
    """Return a noun phrase without the words about its place, the image and its articles."""
    if of_place := _OF_PLACE.fullmatch(name):
        name = of_place[1]
    name = re.split(r",\s+which\b|\s+\(|\s+which\s+is\b", _without_tail(name))[0]
    name = _IN_IMAGE.sub("", name.strip(" ,.:;\u2014-"))
    if place_of := _PLACE_OF.fullmatch(name):
        name = place_of[1]
    name = _NEAR_IT.sub("", name)
    if foreign:
        name = re.sub(r"\s+(?:se|si|sich)$", "", _without_foreign_article(name))
    name = re.split(r"\s+[\u2014\u2013]\s+", name)[-1]
    words = name.split()
    lowered = [_lower(word) for word in words]
    begin = 0
    for i, word in enumerate(lowered):
        if (
            word not in _NO_NAMES
            and word[:1].isalpha()
            and not (word.endswith("ing") and lowered[i + 1 : i + 2] and lowered[i + 1] in _DETERMINERS)
        ):
            break
        if word in _DETERMINERS | _LINKS | _COUNTS | _PLACES | _VERBS or not word[:1].isalpha() or word.endswith("ing"):
            begin = i + 1
    name, _, rest = " ".join(words[begin:]).partition(", ")
    unclear = not is_empty(rest) or _verb(lowered[begin:]) is not None or not _PEOPLE.isdisjoint(lowered[begin:])
    return "" if is_empty(name) or unclear else name
