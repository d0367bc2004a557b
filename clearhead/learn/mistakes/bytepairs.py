"""How merging pairs, and learning merges, usually go wrong."""

from clearhead.learn.exercise import Mistake

COUNTING = """        for word, occurs in words.items():
            for pair in pairwise(word):
                times[pair] += occurs
"""

MISTAKES = (
    Mistake(
        "symbol-used-twice",
        "merge",
        "one symbol was used twice: after a merge, go on behind it; and the last symbol, if it is not merged, stays",
        changes=(
            ("while i < len(ids):", "while i < len(ids) - 1:"),
            ("i += 2  # go on behind the pair: no token is used twice", "i += 1"),
        ),
        where=r"\b(for|while)\b",
    ),
    Mistake(
        "symbol-used-twice",
        "merge",
        "one symbol was used twice: after a merge, go on behind it",
        changes=(("i += 2  # go on behind the pair: no token is used twice", "i += 1"),),
        where=r"\+= ?1|\bfor\b",
    ),
    Mistake(
        "symbol-used-twice",
        "merge",
        "one symbol was used twice: after a merge, go on behind it",
        text="""def merge(ids, pair, new):
    merged, skip = [], False
    for i in range(len(ids)):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            merged.append(new)
        elif i > 0 and (ids[i - 1], ids[i]) == pair:
            pass
        else:
            merged.append(ids[i])
    return merged
""",
        where=r"\b(for|while)\b",
    ),
    Mistake(
        "last-symbol-lost",
        "merge",
        "the last symbol is lost: it has no right neighbour, but it stays",
        changes=(("while i < len(ids):", "while i < len(ids) - 1:"),),
        where=r"len\(ids\)",
    ),
    Mistake(
        "first-pair-only",
        "merge",
        "only the first occurrence was merged",
        text="""def merge(ids, pair, new):
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == pair:
            return [*ids[:i], new, *ids[i + 2 :]]
    return list(ids)
""",
        where=r"break|return|index",
    ),
    Mistake(
        "last-symbol-lost",
        "merge",
        "what stands behind the last match is lost: it belongs to the result as it is",
        text="""def merge(ids, pair, new):
    merged, done = [], 0
    for i in range(len(ids) - 1):
        if i >= done and (ids[i], ids[i + 1]) == tuple(pair):
            merged += [*ids[done:i], new]
            done = i + 2
    return merged
""",
        where=r"break|index|return",
    ),
    Mistake(
        "last-symbol-lost",
        "merge",
        "what stands behind the last left half of the pair is lost: it belongs to the result as it is",
        text="""def merge(ids, pair, new):
    merged, i = [], 0
    while pair[0] in ids[i:]:
        j = ids.index(pair[0], i)
        merged += ids[i:j]
        matched = tuple(ids[j : j + 2]) == tuple(pair)
        merged.append(new if matched else ids[j])
        i = j + 1 + matched
    return merged
""",
        where=r"break|index|return",
    ),
    Mistake(
        "numbers-as-text",
        "merge",
        "the numbers were written as a text and the pair sought in it: there 1 2 is also found in 11 2, or in 1 25",
        text="""def merge(ids, pair, new):
    text = " ".join(map(str, ids)).replace(f"{pair[0]} {pair[1]}", str(new))
    return [int(piece) for piece in text.split()]
""",
        where=r"replace|re\.sub|join",
    ),
    Mistake(
        "pair-either-way",
        "merge",
        "a pair has an order: (1, 2) is not (2, 1)",
        changes=(("tuple(ids[i : i + 2]) == pair", "tuple(ids[i : i + 2]) in (pair, pair[::-1])"),),
        where=r"pair",
    ),
    Mistake(
        "merged-from-the-right",
        "merge",
        "merged from right to left: [1, 1, 1] should become [256, 1]",
        text="""def merge(ids, pair, new):
    merged, i = [], len(ids) - 1
    while i >= 0:
        if i and (ids[i - 1], ids[i]) == pair:
            merged.append(new)
            i -= 2
        else:
            merged.append(ids[i])
            i -= 1
    return merged[::-1]
""",
        where=r"\b(for|while)\b",
    ),
    Mistake(
        "second-pair-missed",
        "merge",
        "of two pairs in a row the second is missed: after a merge one token too many was passed over (or, in a text "
        "with blanks, the blank between them was used up)",
        text="""def merge(ids, pair, new):
    ids = list(ids)
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            ids[i : i + 2] = [new]
            i += 1
        i += 1
    return ids
""",
        where=r"\+= ?1",
    ),
    Mistake(
        "words-counted-once",
        "learn_merges",
        "each word was counted once: count a pair as often as its word occurs",
        changes=(("times[pair] += occurs", "times[pair] += 1"),),
        where=r"\+= ?1|Counter\(.+\)|update\(",
    ),
    Mistake(
        "not-counted-again",
        "learn_merges",
        "what a merge made is counted, but not what it undid: pairs that are gone keep their old counts",
        text="""def learn_merges(words, count):
    words = [(list(word), occurs) for word, occurs in words.items()]
    times, pairs = Counter(), []
    for word, occurs in words:
        for pair in pairwise(word):
            times[pair] += occurs
    for new in range(256, 256 + count):
        if not times:
            break
        best = min(times, key=lambda pair: (-times[pair], pair))
        pairs.append(best)
        del times[best]
        for number, (word, occurs) in enumerate(words):
            merged = merge(word, best, new)
            for pair in pairwise(merged):
                if new in pair and len(merged) < len(word):
                    times[pair] += occurs
            words[number] = merged, occurs
    return pairs
""",
        where=r"times|count|\+=",
    ),
    Mistake(
        "tie-first-seen",
        "learn_merges",
        "of equally frequent pairs the lowest wins; those with the same first token are told apart by the second",
        changes=(("(-times[pair], pair))", "(-times[pair], pair[0]))"),),
        where=r"min|max|sort",
    ),
    Mistake(
        "not-counted-again",
        "learn_merges",
        "later merges still see the old symbols: merge the words, then count again",
        changes=(("        words = merged\n", ""),),
        where=r"\bfor\b",
    ),
    Mistake(
        "not-counted-again",
        "learn_merges",
        "later merges still see the old symbols: merge the words, then count again",
        text="""def learn_merges(words, count):
    times = Counter()
    for word, occurs in words.items():
        for pair in pairwise(word):
            times[pair] += occurs
    return sorted(times, key=lambda pair: (-times[pair], pair))[:count]
""",
        where=r"\bfor\b|most_common",
    ),
    Mistake(
        "pair-across-words",
        "learn_merges",
        "a pair was counted across two words: neighbours are neighbours within a word",
        text="""def learn_merges(words, count):
    pairs = []
    ids = [token for word, occurs in words.items() for _ in range(occurs) for token in word]
    for number in range(count):
        times = Counter(pairwise(ids))
        if not times:
            break
        best = min(times, key=lambda pair: (-times[pair], pair))
        pairs.append(best)
        ids = merge(ids, best, 256 + number)
    return pairs
""",
        where=r"pairwise|zip|\+ ?1",
    ),
    Mistake(
        "tie-highest",
        "learn_merges",
        "of equally frequent pairs the lowest wins, not the highest",
        changes=(
            (
                "min(times, key=lambda pair: (-times[pair], pair))",
                "max(times, key=lambda pair: (times[pair], pair))",
            ),
        ),
        where=r"max|sort|most_common",
    ),
    Mistake(
        "tie-first-seen",
        "learn_merges",
        "of equally frequent pairs the lowest wins, not the one that was seen first",
        changes=(("min(times, key=lambda pair: (-times[pair], pair))", "max(times, key=times.get)"),),
        where=r"max|most_common",
    ),
    Mistake(
        "tie-last-seen",
        "learn_merges",
        "of equally frequent pairs the lowest wins, not the one that was seen last",
        changes=(("min(times, key=lambda pair: (-times[pair], pair))", "sorted(times, key=times.get)[-1]"),),
        where=r"max|sort|most_common",
    ),
    Mistake(
        "rarest-first",
        "learn_merges",
        "the rarest pair was merged, not the most frequent",
        changes=(("(-times[pair], pair)", "(times[pair], pair)"),),
        where=r"min|sort",
    ),
    Mistake(
        "token-number",
        "learn_merges",
        "merge n makes token 256 + n, counted from 0",
        changes=(("256 + number", "257 + number"),),
        where=r"256|257",
    ),
    Mistake(
        "token-number",
        "learn_merges",
        "merge n makes token 256 + n, and each merge a token of its own",
        changes=(("256 + number", "256"),),
        where=r"256",
    ),
    Mistake(
        "token-number",
        "learn_merges",
        "merge n makes token 256 + n, and each merge a token of its own",
        changes=(
            ("256 + number", "256"),
            ("        merged: Counter[Word] = Counter()\n", "        merged = {}\n"),
            ("] += occurs\n        words", "] = occurs\n        words"),
        ),
        where=r"256",
    ),
    Mistake(
        "overlaps-skipped",
        "learn_merges",
        "overlapping pairs count too: (a, a) occurs twice in aaa",
        changes=((COUNTING, COUNTING.replace("pairwise(word)", "zip(word[::2], word[1::2])")),),
        where=r"zip|range",
    ),
    Mistake(
        "pairs-run-out",
        "learn_merges",
        "when no pair is left, stop: fewer merges than asked for are right then",
        changes=(("        if not times:\n            break\n", ""),),
        where=r"max|min",
    ),
    Mistake(
        "run-counted-once",
        "learn_merges",
        "pairs that overlap were counted once: in [1, 1, 1] the pair (1, 1) occurs twice, even if one is merged",
        changes=(
            (
                COUNTING,
                """        for word, occurs in words.items():
            last = -2
            for i, pair in enumerate(pairwise(word)):
                if last == i - 1 and pair[0] == pair[1] == word[i - 1]:
                    continue
                last = i
                times[pair] += occurs
""",
            ),
        ),
        where=r"\b(for|while)\b",
    ),
    Mistake(
        "stopped-at-one",
        "learn_merges",
        "it stopped where no pair occurs twice: a pair that occurs once is merged too, until `count` are found",
        changes=(("        if not times:", "        if not times or max(times.values()) < 2:"),),
        where=r"< ?2|> ?1|>= ?2|break",
    ),
)
