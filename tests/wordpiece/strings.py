"""Varied strings for tokenizers: strings(seed, count), the same for the same arguments."""
import random

PHRASES = """The quick brown fox jumps over the lazy dog.
Attention is all you need; don't you agree?
unaffable reëntry, naïve façade, coöperate, déjà vu
Größe, Übermut, Straße und ÄÖÜ äöü ß ẞ
Ça va très bien, merci — où êtes-vous ?
El niño comió piñas; ¿qué pasó?  ¡Olé!
Zażółć gęślą jaźń
Příliš žluťoučký kůň úpěl ďábelské ódy
Tiếng Việt có nhiều dấu thanh: ắ ằ ẳ ẵ ặ
Iğdır'da İstanbul ve ILIK ışık
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ
Съешь же ещё этих мягких французских булок, Ёжик
עִבְרִית עם נִיקּוּד ובלי ניקוד
اللُّغَةُ العَرَبِيَّة ٢٠٢٤
नमस्ते दुनिया, क्या हाल है?
สวัสดีชาวโลก
வணக்கம் உலகம்
မင်္ဂလာပါ
ខ្មែរ ភាសា
გამარჯობა ՀԱՅԵՐԵՆ հայերեն
አማርኛ ፊደል። ሰላም
我爱北京天安门。今天天气很好！
漢字とひらがな、カタカナとﾊﾝｶｸ
東京都は日本の首都です「引用」
안녕하세요 세계! 한국어 텍스트
ᎣᏏᏲ ꮳꮃꭹ
Kelvin K, Ångström Å, Ohm Ω, ﬁ ﬂ ﬃ, Ⅷ ⅷ, ǅ ǆ Ǆ
e.g. 3.14159, 1e-12, 0x7fff, 50%, $9.99, €5, £3, ¥7
https://example.org/a_b?c=d&e=f#g user@example.com
if (x[i] != *p++) { return ~0; } // `code`
C++ | C# || ^_^ <html>&amp;</html> \\n \\t
co-operate mother-in-law rock'n'roll it's o'clock
2001:db8::1 192.168.0.1 12:30 01/02/2003 +49-30-123456
HELLO hello HeLLo hELLO
[CLS] hello [SEP] world [MASK] [UNK] [PAD]
[cls] [SEP [MASK]] [[SEP]] x[SEP]y [ SEP ]
tokenization antidisestablishmentarianism supercalifragilisticexpialidocious
""".splitlines()

EMOJI = ["😀", "👍🏽",
         "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "❤️", "☃", "✔︎", "🫠", "🪿", "👨🏿‍🚀", "♥", "⌚", "🈚"]
SPACES = [" ", "  ",
          "\t", "\n", "\r\n", "\u00a0", "\u1680", "\u2003", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f",
          "\u3000"]
CONTROLS = ["\0", "\x01",
            "\x0b", "\x0c", "\x1b", "\x7f", "\x85", "\x9f", "\u00ad", "\u061c", "\u200b", "\u200c", "\u200d",
            "\u200e", "\u2060", "\ufeff", "\ufff9", "\ufffd", "\ue000", "\U000e0001", "\U000f1234", "\U0010fffd", "\uffff"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0327", "\u0328", "\u0345", "\u034f", "\u0591", "\u05b0", "\u064b", "\u093c",
         "\u094d",
         "\u0f71", "\u1dc4", "\u20d0",
         "\u302a", "\u302e", "\u302f", "\u3099", "\ufe0f", "\U0001d165", "\U0001d166", "\U0001d16d", "\u0903",
         "\u0bbe", "\u102b", "\u1734", "\u1886", "\u08d4", "\u1abf", "\U0001e8d0", "\U0001e944", "\U00011938"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["—", "…", "«", "»", "„", "“", "、", "。", "〈", "！", "，", "¿", "·",
                                                            "\u166d", "\u2e5b", "\u0964", "\U000111c9", "\u061d", "٪", "⁅"]
BLOCKS = [(0x20, 0x7f), (0xa0, 0x180), (0x180, 0x250), (0x250, 0x370), (0x370, 0x400), (0x400, 0x530), (0x530, 0x600),
          (0x600, 0x780), (0x900, 0xe00), (0xe00, 0x1100), (0x1100, 0x1200), (0x1e00, 0x2000), (0x2000, 0x2100), 
          (0x2100, 0x2c00),
          (0x2c00, 0x3000), (0x3000, 0x3400), (0x3400, 0x3500), (0x4e00, 0xa000), (0xa000, 0xa7c0), (0xac00, 0xd7a4),
          (0xf900, 0xfb00), (0xfb00, 0xfe00), (0xfe00, 0x10000), (0x10000, 0x10d40), (0x11000, 0x12000), (0x1d000, 0x1d800),
          (0x1f000, 0x1fb00), (0x20000, 0x20100), (0x2a6d0, 0x2a710), (0x2b730, 0x2b950), (0x2cea0, 0x2ceb0),
          (0x2f800, 0x2fa20)]
CASES = "İIıiſẞßΣσςǄǅǆKÅΩﬀﬁﬅŉǰΐ҂ԱԵᏣꭰⰀⰰⓐⒶＡａ𐐀𐐨𝐀𝒜ℵⅣⅳ"


def character(draw):
    first, end = draw.choice(BLOCKS)
    return chr(draw.randrange(first, end))


def part(draw):
    kind = draw.randrange(12)
    if kind < 4:
        words = draw.choice(PHRASES).split(" ")
        begin = draw.randrange(len(words))
        return " ".join(words[begin:begin + draw.randint(1, 3)])
    if kind == 4:
        return "".join(character(draw) for _ in range(draw.randint(1, 6)))
    if kind == 5:
        return draw.choice("aeiouAEIOUnçñक가ガ漢ו") + "".join(draw.choice(MARKS) for _ in range(draw.randint(1, 5)))
    if kind == 6:
        return draw.choice(EMOJI) * draw.randint(1, 2)
    if kind == 7:
        return draw.choice(CONTROLS)
    if kind == 8:
        return "".join(draw.choice(PUNCTUATION) for _ in range(draw.randint(1, 3)))
    if kind == 9:
        return "".join(draw.choice(CASES) for _ in range(draw.randint(1, 4)))
    if kind == 10:
        return str(draw.randrange(10 ** draw.randint(1, 12)))
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyzABC") for _ in range(draw.randint(1, 9)))


def fixed():
    """What a random draw would miss."""
    yield from ("", " ", "\n\t ", "\0", "\u200b", "a", "##a", "[UNK]", "[CLS]", "[SEP][SEP]", "[MASK]ing", "é" * 3,
                "e\u0301" * 3)
    for length in (99, 100, 101, 102):
        yield "a" * length
        yield "é" * length
        yield "漢" * length
        yield "x " + "\u0301a" * length + " y"
    yield "word " * 300
    yield "." * 300
    yield "\u0301" * 500
    yield "a" + "\u302e\U0001d165\u302f" * 60 + "b"
    yield from PHRASES
    yield from EMOJI


def strings(seed, count):
    draw = random.Random(seed)
    made = list(fixed())
    while len(made) < count:
        text = ""
        for _ in range(draw.randint(1, 6)):
            text += part(draw) + (draw.choice(SPACES) if draw.random() < 0.2 else " " if draw.random() < 0.6 else "")
        made.append(text)
    return made
