"""Hard texts, one table for all tests: each with the reason why it is here.

Texts are written as escapes where an editor could lose or hide what matters. `random_texts` makes more, from the same
troublemakers, by a seed; `strategy` gives them to Hypothesis.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import strategies

HARD_TEXTS: list[tuple[str, str]] = [
    # sizes
    ("", "the empty text"),
    ("a", "one letter"),
    (" ", "one space"),
    ("   ", "only spaces"),
    (" " * 33, "spaces past one block of 32"),
    ("\n", "only a newline"),
    ("\n\n\n", "only newlines"),
    (" \n \t \r\n  ", "white space of several kinds only"),
    ("x" * 31, "a word of 31 bytes"),
    ("x" * 32, "a word of 32 bytes"),
    ("x" * 33, "a word of 33 bytes"),
    ("y" * 100, "a word of 100 characters, still allowed in WordPiece"),
    ("y" * 101, "a word of 101 characters, unknown in WordPiece"),
    ("é" * 100 + " " + "é" * 101, "100 and 101 characters, not bytes"),
    ("Ǆ" * 60, "60 characters, 120 after NFKD, on both sides of the limit of 100"),
    ("ab" * 700, "a word longer than a block"),
    ("_" * 900, "underscores: merges of many lengths over one long run"),
    ("word " * 300, "the same chunk again and again"),
    # ASCII words, numbers, punctuation
    ("The quick brown fox jumps over the lazy dog.", "plain English"),
    ("don't DON'T we'll they're I'M you'd he's 's 'S 't 've'd", "contractions, also upper case and alone"),
    ("x's x'S 'sx ''s '' s' rock'n'roll o'clock", "contractions with letters before and after"),
    ("it\u2019s don\u2019t", "contractions with a typographic apostrophe"),
    ("it'\u017f we'\u212aa", "case-insensitive groups fold long s and the Kelvin sign"),
    ("1 12 123 1234 12345 123456 1234567", "digit runs: groups of three count from the left"),
    ("3.14 1,000,000.00 -5e-10 0x1F 1e9 v2.0.1", "numbers with signs and points"),
    ("a1b2c3 abc123def 2nd 10x", "letters and digits by turns"),
    ("hello,world!how?are;you:(fine)[ok]{yes}<no>", "punctuation without spaces"),
    ("... ---- ==== ****!!!??? ,,,,", "runs of punctuation"),
    ("!\n/x \u2026\n\n//y ?/\r\n", "punctuation with newlines and slashes behind it"),
    ("snake_case CamelCase SCREAMING_CASE mixedCASEWord iPhone McDonald", "cases within words"),
    ("foo@example.org https://example.org/a/b?c=d&e=%20#f", "addresses"),
    ("TWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdvcms+/A==" * 4, "base64: a long word of letters, digits and signs"),
    ("d41d8cd98f00b204e9800998ecf8427e 550e8400-e29b-41d4-a716-446655440000", "hexadecimal"),
    ("aaa aaaa aaaaa aaaaaaaaaaaaaaaaaaaaaaaaaa", "overlapping merges: leftmost first"),
    ("\\n \\t \\u0041 \\\\ \"quoted\" 'single' `back`", "escapes and quotes"),
    # white space
    ("a b  c   d    e", "runs of spaces before letters: look-ahead leaves one"),
    ("a  1  2   !   ,", "runs of spaces before digits and punctuation"),
    ("  two leading and two trailing  ", "spaces at both ends"),
    ("a\tb\t\tc\n\td", "tabs"),
    ("a\nb\n\nc\n\n\nd", "newlines"),
    ("a\r\nb\r\n\r\nc\rd", "CR LF and CR alone"),
    ("a \n b\n  c \n\n  d", "spaces around newlines"),
    ("a\x0bb\x0cc", "vertical tab and form feed: BERT deletes them and joins their neighbours"),
    ("a\x85b \x85 c\x85", "NEL: white space for some, a control character for others"),
    ("a\u00a0b\u00a0\u00a0c \u00a0d", "no-break space"),
    ("a\u3000b\u3000\u3000c", "ideographic space"),
    ("a\u2028b\u2029c", "line and paragraph separator"),
    ("a\u1680b\u2000c\u2003d\u2009e\u202ff\u205fg", "other spaces of Zs"),
    ("\u2581a \u2581 b\u2581\u2581c\u2581", "U+2581, the sign that Metaspace writes, in the text itself"),
    ("\u0120a \u010a \u0120\u0120", "the letters that ByteLevel writes for space and newline, in the text itself"),
    # control, zero-width, unassigned, private
    ("a\x00b\x00\x00 \x00", "NUL"),
    ("\ufeffstart mid\ufeffdle", "byte order mark, first and in the middle"),
    ("\x01\x02\x1b[31mred\x1b[0m\x7f", "control characters and DEL"),
    ("a\u200bb\u200cc\u200dd\u2060e\u00adf", "zero-width space, joiners, soft hyphen"),
    ("\u200e\u200f\u202aabc\u202e\u2066x\u2069", "direction marks"),
    ("\ufffd a\ufffdb", "the replacement character: BERT deletes it"),
    ("a\ue000b\U000f0000c\U0010ffffd", "private use and the last code point"),
    ("a\ufdd0b\uffffc\U0001fffed\u0378e", "non-characters and an unassigned code point"),
    ("\U000e0041\U000e0042 a\U000e0001", "tag characters"),
    # combining marks, normal forms, case
    ("e\u0301 \u00e9", "combining accent: NFC joins it"),
    ("a\u0323\u0307 a\u0307\u0323", "two marks in both orders: reordered by class"),
    ("q\u0307\u0323\u0301\u0315", "four marks, none of which composes"),
    ("\u0301abc \u0301\u0301", "a mark at the start and after a space"),
    ("a" + "\u0301\u0323" * 40, "eighty marks on one letter"),
    ("\u0344 \u0958 \u2126 \u212b", "characters that NFC never leaves"),
    ("\u0130stanbul I\u0131\u0130i", "dotted capital I: two code points in lower case"),
    ("\u03a3\u03a3 \u039f\u0394\u039f\u03a3 \u03c3\u03c2", "final sigma is not looked at"),
    ("\u212a \u212b \u017f \u1e9e \u00df STRA\u00dfE", "Kelvin, Angstrom, long s, sharp s"),
    ("\ufb01n \ufb03 \ufb06 \u0133 \u01c6", "ligatures"),
    ("\u338f \u33a5 \u2460 \u00bd \u00b2 \u2075 \u2163", "compatibility characters: kg, numbers"),
    ("\ufdfa", "one character, eighteen after NFKC"),
    ("\uff21\uff22\uff23\uff11\uff12 \uff01 \uff3b\uff35\uff2e\uff2b\uff3d", "full-width letters, and [UNK] in them"),
    ("\uff76\uff9e \uff8a\uff9f\uff71", "half-width kana with voiced marks"),
    ("\u304b\u3099 \u306f\u309a \u304c \u309b\u309c", "kana and voiced marks apart, joined, and spacing"),
    ("\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00", "jamo that make syllables, and the syllables"),
    ("\u1100\u1100\u1161 \uac00\u11a8 \u11a8", "jamo in odd orders"),
    ("\u3131\u314f\uffa1", "compatibility jamo"),
    ("n\u0303o\u0303 Vie\u0323\u0302t Viê\u0323t Việt", "Vietnamese in three spellings"),
    ("\U0001d49c\U0001d7d8 \U0001d554", "mathematical letters and digits outside the BMP"),
    # scripts
    ("Привет, мир! Ёлка съела ещё три йогурта.", "Russian"),
    ("Ελληνικά: ξεσκεπάζω την ψυχοφθόρα βδελυγμία", "Greek with accents"),
    ("שלום עולם, בְּרֵאשִׁית בָּרָא", "Hebrew with points"),
    ("مرحبا بالعالم، العَرَبِيَّة ۱۲۳ ١٢٣", "Arabic with vowel signs and two kinds of digits"),
    ("नमस्ते दुनिया। हिन्दी में १२३ क्षत्रिय", "Hindi: conjuncts, danda, digits"),
    ("বাংলা ভাষা ৪৫৬", "Bengali"),
    ("வணக்கம் உலகம் கொ", "Tamil, with a vowel sign of two parts"),
    ("สวัสดีชาวโลก ภาษาไทยไม่มีวรรค ๑๒๓", "Thai without spaces"),
    ("ສະບາຍດີ ໑໒", "Lao"),
    ("မင်္ဂလာပါ", "Burmese with stacked letters"),
    ("ជំរាបសួរ ពិភពលោក", "Khmer with subscript letters"),
    ("བོད་སྐད་ ཀྵ", "Tibetan"),
    ("გამარჯობა ᲒᲐᲛᲐᲠᲯᲝᲑᲐ", "Georgian, small and capital"),
    ("Բարեւ աշխարհ և", "Armenian with a ligature"),
    ("ሰላም ልዑል ፩፪", "Amharic"),
    ("ᏣᎳᎩ ꭰꭱ", "Cherokee: capitals came first"),
    ("你好，世界！中文没有空格。这是一个测试。", "Chinese with its punctuation"),
    ("中文English混排123和数字４５６", "Chinese, Latin and digits without spaces"),
    ("こんにちは世界。カタカナとひらがな、ー々〆", "Japanese"),
    ("안녕하세요 세계! 한국어 문장입니다.", "Korean"),
    ("𠀀𠮷𪛖𫝀𫠠\U0002b920\U0002ceb0\U0002f800\uf900", "ideographs of the extensions and compatibility ones"),
    ("㐀㐁 一丁 龥 鿿 \u9fa6", "the edges of the ideograph blocks"),
    ("ᠮᠣᠩᠭᠣᠯ\u180e ᠪᠢᠴᠢᠭ", "Mongolian with its vowel separator"),
    ("ꦲꦏ꧀ꦱꦫ 𞤀𞤣𞤤𞤢𞤥 𐐀𐐨 𝄞", "Javanese, Adlam, Deseret: small and capital outside the BMP"),
    ("Zażółć gęślą jaźń, Příliš žluťoučký kůň, Ærøskøbing, Đà Nẵng", "Latin with many accents"),
    ("٠١٢ ०१२ ๐๑๒ ０１２ 𝟎𝟏𝟐 ⅷ ⑨ ½ 一二三", "digits and numbers of several scripts"),
    # emoji and symbols
    ("😀😃 🎉! 👍", "emoji"),
    ("👨\u200d👩\u200d👧\u200d👦 👩🏽\u200d🚀 🏳\ufe0f\u200d🌈", "joined families, skin tones, the rainbow flag"),
    ("🇩🇪🇫🇷🇯 1\ufe0f\u20e3 #\ufe0f\u20e3", "flags, half a flag, keycaps"),
    ("❤\ufe0f ❤\ufe0e ☺ ✈\ufe0f", "variation selectors"),
    ("€100 £5 ¥7 ₹9 $3 ¢ ©®™ ±×÷ ∑∫√ →⇒ ░▒▓", "currency, signs, arrows, blocks"),
    ("« » „ “ ‘ ’ – — … ¿ ¡ § ¶ · ‰", "punctuation outside ASCII"),
    # code
    (
        "def f(x):\n    if x > 0:\n        return x ** 2  # squared\n\n\nclass A(B):\n\tpass\n",
        "Python with spaces and a tab",
    ),
    ('int main(void) {\n\tprintf("%d\\n", a[i]->b);\n\treturn 0;\n}\n', "C"),
    ('const f = async (x) => `${x?.y ?? "z"}`;\n// done\n', "JavaScript"),
    ('fn main() { let v: Vec<u8> = vec![0; 10]; println!("{:?}", &v[..]); }', "Rust"),
    ("SELECT a, COUNT(*) FROM t WHERE b <> 'x''y' GROUP BY 1;--", "SQL"),
    ('<div class="a">&nbsp;<br/><!-- c --></div>', "HTML"),
    ('{"a": [1, 2.5, null, true], "b": {"c": "\\u00e9"}}', "JSON"),
    ("for f in *.txt; do echo \"$f\" | sed 's/a/b/g' >> out; done 2>&1", "shell"),
    ("# Title\n\n- item **bold**\n  1. `code`\n\n| a | b |\n|---|---|\n", "Markdown"),
    ("\\frac{a}{b} $x^2$ \\begin{align} \\alpha \\end{align}", "TeX"),
    # what looks like special tokens
    ("[CLS] hello [SEP] [MASK] [UNK] [PAD]", "BERT's special tokens"),
    ("a[MASK]b [MASK][MASK] [ MASK ] [mask]", "special tokens without spaces, and near misses"),
    ("<s>hi</s> <unk> <pad> <mask> <0x41> <0x0A>", "SentencePiece's special and byte tokens"),
    ("<|endoftext|>a<|endoftext|><|endoftext|> <|im_start|>user\n<|im_end|>", "GPT's special tokens"),
    ("##ing ## #a", "the prefix of continuing pieces in the text itself"),
]

TEXTS: list[str] = [text for text, _reason in HARD_TEXTS]

# What random texts are made of: one or a few code points each, all known to have broken some tokenizer.
TROUBLE: list[str] = [
    *" \t\n\r",
    "  ",
    "   ",
    "\n\n",
    "\r\n",
    *"aAbBeEiIkKsSzZ",
    *"0129",
    *"'\"!?.,;:-_/\\#$%&()[]{}<>|@^~`*+=",
    *("the", " the", "ing", "'s", "'S", "'ll", "n't", "http", "abc", "123", "##", "unaffable"),
    *("\x00", "\x0b", "\x0c", "\x1f", "\x7f", "\x85", "\xa0", "\xad"),
    *("é", "e\u0301", "ü", "ß", "ẞ", "ı", "İ", "ſ", "K", "Å", "Σ", "ς", "ﬁ", "ǆ", "½", "²", "㎏", "\ufdfa", "Ａ", "１"),
    *("\u0300", "\u0301", "\u0307", "\u0315", "\u0323", "\u0344", "\u0345", "\u093c", "\u3099", "\u309a", "\u20e3"),
    *("\u200b", "\u200c", "\u200d", "\u200e", "\u2028", "\u2029", "\u2060", "\ufe0f", "\ufeff", "\ufffd", "\u180e"),
    *("\u1680", "\u2003", "\u202f", "\u3000", "\u2581", "Ġ"),
    *("я", "Ё", "й", "и\u0306", "λ", "ά", "ש", "שׁ", "ع", "ّ", "١", "क", "क्ष", "१", "ท", "ำ", "๑", "가", "ᄀ", "ᅡ", "ᆨ"),
    *("中", "国", "。", "，", "𠮷", "豈", "は", "が", "ー", "ｶ", "ﾞ", "々"),
    *("😀", "👩🏽", "👨\u200d👩\u200d👧", "🇩", "🇩🇪", "❤\ufe0f", "𝟘", "𝄞", "\ue000", "\U000e0041", "\u0378", "\uffff"),
    *("[CLS]", "[MASK]", "[UNK]", "<s>", "</s>", "<unk>", "<mask>", "<0x0A>", "<|endoftext|>"),
]


def random_texts(seed: int, count: int, longest: int = 40, alphabet: list[str] | None = None) -> list[str]:
    """`count` texts of up to `longest` fragments; the same for the same seed on every machine.

    >>> random_texts(seed=1, count=2) == random_texts(seed=1, count=2)
    True
    """
    source = random.Random(seed)
    fragments = alphabet or TROUBLE
    return ["".join(source.choices(fragments, k=source.randint(0, longest))) for _ in range(count)]


def random_code_points(seed: int, count: int, longest: int = 20) -> list[str]:
    """Texts of any code points but surrogates, most of them from the lower planes."""
    source = random.Random(seed)
    limits = (0x80, 0x800, 0x3000, 0xD800, 0x20000, 0x110000)

    def code_point() -> str:
        number = source.randrange(source.choice(limits))
        return chr(number) if not 0xD800 <= number < 0xE000 else " "

    return ["".join(code_point() for _ in range(source.randint(0, longest))) for _ in range(count)]


def random_splits(seed: int, count: int, parts: int) -> list[int]:
    """Where to split a batch of `count` texts into `parts`, empty parts included: rising, from 0 to `count`."""
    source = random.Random(seed)
    return [0, *sorted(source.randint(0, count) for _ in range(parts - 1)), count]


def neighbours() -> Iterator[str]:
    """Every pair of troublemakers, joined to texts of a few hundred characters: each meets each once."""
    for first in TROUBLE:
        yield "".join(first + second for second in TROUBLE)


def strategy(longest: int = 30) -> strategies.SearchStrategy[str]:
    """Texts for Hypothesis: troublemakers, with any other characters between them."""
    characters = strategies.characters(exclude_categories=["Cs"])
    fragments = strategies.one_of(strategies.sampled_from(TROUBLE), characters)
    return strategies.lists(fragments, max_size=longest).map("".join)
