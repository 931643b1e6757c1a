"""Labels in free text: what of the words around numbers is the name of an object."""

from __future__ import annotations

import re

_DANGLING = re.compile(r"<[A-Za-z_][\w.-]*\s*$")
"""The beginning of a tag whose attributes are the numbers."""
_TAG = re.compile(r"<\|?/?[A-Za-z_][\w.-]*(?:\s[^<>]{0,200})?\|?/?>|<\uff5c[^\uff5c<>]{1,40}\uff5c>|```(?:\w+)?")
_XML_FACTS = re.compile(
    r"<(filename|folder|path|source|database|pose|truncated|difficult|occluded|segmented|depth)>[^<>]*</\1>"
)
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)\*|\*(?!\w)")
_LEADING = re.compile(
    r"""(?:\s*(?:
        \#[0-9]{1,3}\b[.:)]?                # #1
      | [-*\u2022\u2013\u2014\u00b7\u30fb\u25aa\u25cf\u25cb\u25e6\u2023#>|&]+(?=\s|\w|$)  # bullets, headings, cells
      | \(?[0-9]{1,3}[.):\u3001](?![0-9])   # 1. 1) (1) 1:
      | \(?[IVX]{1,4}[.)](?=\s)            # I. (I)
      | [0-9]{1,3}\s*\|                     # the first cell of a table row
      | \(?[a-z]\)                          # a) (a)
      | [,;:.=\u2192|]+
    )\s*)+""",
    re.VERBOSE,
)
_TRAILING = re.compile(
    r"[\s:=,;|>\u2192\u27f6\u21d2\-\u2013\u2014~@(\[{]+$|\s*\.$|[\s:]*\b(?:starts?|begins?)\s+(?:at|from)$"
)
_ROLE = re.compile(
    r"(?:assistant|ai|bot|model|answer|output|response|result|final answer|user|system)\s*:\s*", re.IGNORECASE
)
_PLACE = (
    r"(?:bounding\s+box(?:es)?|bbox(?:es)?|box(?:es)?|coordinates?|coords?|location|position|region|point"
    r"|cent(?:re|er))"
)
_GENERIC = re.compile(
    rf"(?:the\s+|its\s+|my\s+)?(?:(?:normali[sz]ed|pixel|predicted|final|2d|approximate|corresponding)\s+)*{_PLACE}"
    r"(?:\s*\((?:[a-z0-9_,\s]+)\))?(?:\s+(?:is|are|of|for|at|in|coordinates|format))*",
    re.IGNORECASE,
)
_OF = re.compile(
    rf"(?:.*\b)?{_PLACE}\s+(?:of|for|around)\s+(?:the\s+|an?\s+|all\s+)?(.+?)(?:\s+(?:is|are|would\s+be)(?:\s+at)?)?",
    re.IGNORECASE,
)
_OWNER = re.compile(
    rf"(?:the\s+)?(.+?)(?:['\u2019]s\s+{_PLACE}|\s+(?:bounding\s+box(?:es)?|bbox(?:es)?|coordinates?))"
    r"(?:\s+(?:is|are|has)(?:\s+(?:at|its|an?|the))?)?",
    re.IGNORECASE,
)
_THERE = re.compile(
    r"(?:(?:sure|yes|okay|ok|here)[,.!]\s*)?(?:there\s+(?:is|are)\s+)?(?:(?:the|an?|this|that|these)\s+)(.+?)\s+"
    r"(?:is|are|was|were|can\s+be|spans?|occup(?:y|ies)|covers?|appears?|lies?|sits?|stands?|starts?|extends?|"
    r"located|at|[a-z]+s\s+from)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_HAS = re.compile(
    rf"(?:(?:the|an?)\s+)?(.+?)\s+(?:has|have)\s+(?:(?:an?|the|its)\s+)?(?:\w+\s+)?{_PLACE}\b.*", re.IGNORECASE
)
_NEAR_IT = re.compile(
    r"(.+?)\s+(?:near(?:by)?|beside|behind|under|above|below|on|in|next\s+to|in\s+front\s+of|around|with)\s+(?:it|them|him|her)",
    re.IGNORECASE,
)
"""An object beside one of which the sentence has spoken."""
_ARTICLES = r"(?:(?:der|die|das|den|ein|eine|le|les?|la|l['\u2019]|une?|el|los|las|una|os?|as|uma?|il|lo|gli|i)\s*\b)"
_OTHER_VERB = re.compile(
    rf"(?:(?:und|et|y|e)\s+)?{_ARTICLES}?\s*(.+?)\s+(?:befinde[tn]\s+sich|ist|liegt|sind|liegen|est|se\s+trouven?t?|sont|"
    r"est\u00e1n?|se\s+encuentran?|s\u00e3o|fica|si\s+trova(?:no)?|\u00e8|\u00e9)(?=\s|$).*",
    re.IGNORECASE,
)
_OTHER_AND = re.compile(
    rf"begrenzungsrahmen\s+(?:f\u00fcr|des|der)\s+{_ARTICLES}?\s*(.+)|(?:und|et|y|e|hay|il\s+y\s+a|c'\u00e8)\s+{_ARTICLES}\s*(.+?)(?:\s+(?:en|\u00e0|bei|em|a|in))?|{_ARTICLES}\s*(.+?)\s+(?:bei|en)",
    re.IGNORECASE,
)
"""Sentences in German, French, Spanish, Portuguese and Italian."""
_CJK = "\u3040-\u30ff\u4e00-\u9fff"
_EAST_ASIAN_VERB = re.compile(rf"(.*[{_CJK}])(?:\u5728|\u662f|\u306f|\u304c)")
_IMAGE = r"(?:image|picture|photo(?:graph)?|scene|screenshot|frame)"
_COUNT = r"(?:[0-9]{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|several|multiple|many|some)"
_SEEN = re.compile(
    r"(?:.*\b)?(?:(?:i|you|we)\s+(?:(?:can|could|have)\s+)?(?:see|f(?:i|ou)nd|detect(?:ed)?|spot(?:ted)?|identif(?:y|ied)|locate[d]?|notice[d]?)|there(?:['\u2019]s|\s+is|\s+are)"
    rf"|(?:this|the)\s+{_IMAGE}\s+(?:shows|depicts|contains|features|displays|has))\s+"
    rf"(?:an?|the|(?:the\s+)?{_COUNT})\s+(.+?)(?:\s+at)?",
    re.IGNORECASE | re.DOTALL,
)
_ORDINAL = re.compile(
    r"(?:the\s+|an?)?(?:first|second|third|fourth|fifth|last|other|next|another|target|requested)"
    r"(?:\s+(?:one|object|element|item|target))?(?:\s+(?:is|would\s+be)|,)\s+(?:an?|the|another)\s+(.+?),?",
    re.IGNORECASE,
)
"""An object of a series, which the sentence names after its number."""
_IN_IMAGE = re.compile(
    rf"(?:in|on|from|based\s+on)\s+(?:(?:the|this)\s+)?{_IMAGE}\s*[0-9]{{0,3}}\s*,?\s+(?:(?:the|an?)\s+)?(?=\w)"
    r"|(?:in|on|at|to)\s+the\s+(?:left|right|top|bottom|middle|cent(?:re|er)|foreground|background)(?:\s+side)?\s*,?\s+"
    r"(?:there\s+is\s+)?(?:the|an?)\s+",
    re.IGNORECASE,
)
"""Where in the image an object is, before its name."""
_NEXT_SENTENCE = re.compile(
    r"(?<=\s)(?:[^\W\d]\w+[^\W\d_]|(?!vs|ca|cf|no)[a-z]{2})[.!?]\s+(?=[A-Z])|;\s+(?=(?:the|an?)\s)"
)
"""The end of a sentence before another; a word of two letters may be an abbreviation."""
_ARTICLE = re.compile(r"(?:an?|the|his|her|its|their|another|two|three|four|some|several)\s", re.IGNORECASE)
_PHRASE = re.compile(rf"(?:[a-z]+\s+){{1,4}}?(?={_ARTICLE.pattern})")
"""Words of a caption between the object before and the article of the next one."""
_ENDS = frozenset(".!?;")
_AT = re.compile(
    r"(.+?)(?:\s+(?:is|are))?(?:\s+(?:located|positioned|found))?\s+at|(.+?)\s+[a-z]+s\s+from", re.IGNORECASE
)
_EAST_ASIAN = re.compile(
    r"(?:[\u56fe\u753b\u7167][\u4e2d\u50cf\u7247\u9762\u91cc]{1,2}(?:\u7684)?)?"
    r"(.+?)(?:\u4f4d\u4e8e|\u5904\u4e8e|\u306e(?:\u5ea7\u6a19|\u4f4d\u7f6e)|\u7684(?:\u5750\u6807|\u4f4d\u7f6e|\u8fb9\u754c\u6846))[\u662f\u4e3a\u306f]?"
)
"""Coordinates or position of something in Japanese and Chinese."""
_AND = re.compile(r"and\s+(?=(?:the|an?|another|some)\s)", re.IGNORECASE)
_SENTENCE = re.compile(
    r"\b(?:is|are|was|were|here|sure|following|found|detected|image|i|can|this|these|there|below|provided|answer|output|"
    r"objects?|detections?|bounding|boxes|coordinates|json|format|results?|list|based|assistant|user|thought|action)\b",
    re.IGNORECASE,
)
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ('"', '"'), ("'", "'"))
_OPEN_QUOTES, _CLOSE_QUOTES = "\"'\u201c\u2018\u00ab", "\"'\u201d\u2019\u00bb"
_STOP_WORDS = re.compile(r"(?:(?:the|an?|and|its?|with|of|is|are|at|in|to|by|corner|here)\b[\s,]*)+", re.IGNORECASE)
_INSTANCE = re.compile(r"(.*?[^\s#0-9])\s*#?\s*([0-9]{1,3})")


_CLICK = re.compile(
    r"(?:i(?:['\u2019]ll|\s+(?:will|would|should|need\s+to|am\s+going\s+to))\s+)?(?:now\s+)?(?:click|tap|press|select)(?:ing)?"
    r"\s+(?:on\s+)?the\s+(.+?)(?:\s+at)?",
    re.IGNORECASE,
)
_SIDE_OF = re.compile(r"(?:to|on|at)\s+the\s+(?:left|right|top|bottom)\s+of\s+(?:the|an?)\s+(.+)", re.IGNORECASE)
_DOES = re.compile(
    r"(?:he|she|it|they)\s+(?:is|are)\s+[a-z]+ing\s+(?:an?|the|his|her|their)\s+(.+?)(?:\s+at)?", re.IGNORECASE
)
_FOUND = re.compile(
    r"(?:(?:both|label|class|object|name)\s*(?:\bthe\s+|[:=]\s*))(.+)|(.+?)\s+(?:detected|found)[.!]?", re.IGNORECASE
)
_REMARK = re.compile(r"(.+?)\s*\((?:about|roughly|approximately)[^()]*\)(?:\s+(?:is|are).*)?", re.IGNORECASE)
_OTHER_SCRIPT = re.compile(
    r"(.+?)\s+(?:\u043d\u0430\u0445\u043e\u0434(?:\u0438\u0442|\u044f\u0442)\u0441\u044f|\u0440\u0430\u0441\u043f\u043e\u043b\u043e\u0436\u0435\u043d[\u0430\u043e\u044b]?)(?:\s+\S{1,2})?"
    r"|(?:[\u56fe\u753b\u7167][\u4e2d\u50cf\u7247\u9762\u91cc]{0,3})?\u6709(?:\u4e00[\u53ea\u4e2a\u8f86\u4f4d\u6761\u5f20\u628a\u540d])?(.+?)[,\uff0c]\s*\u5750\u6807[\u4e3a\u662f]?"
)
"""Sentences in Russian and Chinese."""
_INSIDE = re.compile(rf"(.+?)\s+in\s+(?:the|this)\s+{_IMAGE}\s*,?", re.IGNORECASE)
_SENTENCES = (
    *(_ORDINAL, _OF, _HAS, _OWNER, _THERE, _SEEN, _AT, _EAST_ASIAN),
    *(
        _CLICK,
        _SIDE_OF,
        _DOES,
        _REMARK,
        _INSIDE,
        _NEAR_IT,
        _OTHER_VERB,
        _OTHER_AND,
        _EAST_ASIAN_VERB,
        _OTHER_SCRIPT,
        _FOUND,
    ),
)


def clean_label(words: str) -> tuple[str, bool]:
    """Return a label without list numbers, marks and the sentence around it, and whether words or numbers went.

    Example:
        >>> clean_label("2. **Red car** \u2014"), clean_label("The bounding box of the dog is")
        (('Red car', True), ('dog', True))
    """
    text = words
    if "<" in words or "`" in words:
        text = _DANGLING.sub(" ", _TAG.sub(" ", _XML_FACTS.sub(" ", words)))
    if "\n" in text:
        text = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    text = _EMPHASIS.sub("", text).strip()
    trimmed = False
    if (lead := _LEADING.match(text)) and lead.end():
        trimmed = any(c.isalnum() for c in lead[0])
        text = text[lead.end() :]
    if (role := _ROLE.match(text)) and role.end():
        trimmed, text = True, text[role.end() :]
    text = _strip(text)
    if "|" in text:  # cells of a table row: the last with words
        cells = [cell.strip() for cell in text.split("|")]
        named = [cell for cell in cells if any(map(str.isalpha, cell))]
        trimmed |= len(cells) > 1
        text = named[-1] if named else ""
    if _GENERIC.fullmatch(text):
        return "", trimmed
    if not _ENDS.isdisjoint(text) and (ends := [found.end() for found in _NEXT_SENTENCE.finditer(text)]):
        trimmed, last = True, text[ends[-1] :]
        if _GENERIC.fullmatch(last) or last.lower() in ("it", "its"):  # the sentence before names what it is about
            last = _strip(text[ends[-2] if len(ends) > 1 else 0 : ends[-1]])
        text = last
    if image := _IN_IMAGE.match(text):
        trimmed, text = True, text[image.end() :]
    if conjunction := _AND.match(text):
        trimmed, text = True, text[conjunction.end() :]
    for pattern in _SENTENCES:
        if (sentence := pattern.fullmatch(text)) and (name := sentence[sentence.lastindex or 0]).strip():
            return clean_label(_strip(name))[0], True  # a sentence may stand in another: there is a cat in the image at
    return text, trimmed


def phrase_of_caption(label: str, with_article: bool = True) -> str:
    """Return the words from their article on (or after it), of words between two objects of one sentence.

    Example:
        >>> phrase_of_caption("lying on a couch"), phrase_of_caption("the man with the hat"), phrase_of_caption("roses")
        ('a couch', 'the man with the hat', 'roses')
    """
    lead = None if _ARTICLE.match(label) else _PHRASE.match(label)
    phrase = label[lead.end() :] if lead else label
    article = None if with_article else _ARTICLE.match(phrase)
    return phrase[article.end() :] if article else phrase


def is_phrase(label: str) -> bool:
    """Return whether a label begins with an article, as in captions."""
    return _ARTICLE.match(label) is not None


def _strip(text: str) -> str:
    """Return a label without separators, quotes and single brackets around it."""
    before = None
    while before != text:
        before = text
        if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
            text = text[1:-1]
        text = _TRAILING.sub("", text.strip())
        if len(text) > 1 and text[0] in _OPEN_QUOTES and text[-1] in _CLOSE_QUOTES:
            text = text[1:-1]
        text = text.lstrip(")]},; ")
        for opening, closing in _BRACKETS:
            lone = opening == closing and text.count(opening) == 1
            if text.startswith(opening) and (lone or closing not in text):
                text = text[1:]
            if text.endswith(closing) and (lone or opening not in text):
                text = text[:-1]
    return "" if _STOP_WORDS.fullmatch(text) else text


def is_heading(label: str) -> bool:
    """Return whether a line of words alone can be the label of what follows, and is no sentence."""
    return bool(label) and len(label.split()) <= 6 and not _SENTENCE.search(label) and any(map(str.isalpha, label))


def without_instance_numbers(labels: list[str]) -> list[str]:
    """Take off the numbers that only count the objects of one name: `person 1`, `person 2`, ...

    Example:
        >>> without_instance_numbers(["person 1", "person 2", "bus 42"])
        ['person', 'person', 'bus 42']
    """
    counted: dict[str, list[int]] = {}
    for label in labels:
        if found := _INSTANCE.fullmatch(label):
            counted.setdefault(found[1], []).append(int(found[2]))
    stems = {
        stem for stem, numbers in counted.items() if len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1))
    }
    if not stems:
        return labels
    return [found[1] if (found := _INSTANCE.fullmatch(label)) and found[1] in stems else label for label in labels]
