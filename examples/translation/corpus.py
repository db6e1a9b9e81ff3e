#!/usr/bin/env python3
"""Makes a corpus for translation of the messages of programs, which Debian's packages carry with their translations.

    python3 examples/translation/corpus.py OUT [--language de] [--cache FOLDER]

fetches the packages below (90 MB, by apt-get download; nothing is installed), and writes pairs of lines to OUT/train.en and
train.de, valid.en ... and test.en ...  The same packages make the same bytes.  The texts are under their programs' licences,
which OUT/sources.txt names beside the packages' versions."""
import argparse
import collections
import hashlib
import html
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

# Packages of Debian 12 and the licence of the programs that they are of.  LANGUAGE is replaced by the language.
PACKAGES = {
    "apt": "GPL-2+", "audacity-data": "GPL-2+", "bash": "GPL-3+", "binutils-common": "GPL-3+", "coreutils": "GPL-3+",
    "darktable": "GPL-3+", "dpkg": "GPL-2+", "evolution-common": "LGPL-2 or LGPL-3", "gcc-12-locales": "GPL-3+",
    "geany-common": "GPL-2+", "gedit-common": "GPL-2", "gettext": "GPL-3+", "gimp-data": "GPL-3+", "git": "GPL-2",
    "gnome-control-center-data": "GPL-2+", "gnucash-common": "GPL-2+", "gnumeric-common": "GPL-2 or GPL-3", "gnupg-l10n": "GPL-3+",
    "gthumb-data": "GPL-2+", "krita-l10n": "GPL-3+", "libc-l10n": "LGPL-2.1+", "libglib2.0-data": "LGPL-2.1+",
    "libgtk-3-common": "LGPL-2+", "libgtk-4-common": "LGPL-2.1+", "libreoffice-l10n-LANGUAGE": "MPL-2.0",
    "nautilus-data": "GPL-3+", "pidgin-data": "GPL-2+", "rhythmbox-data": "GPL-2+", "subversion": "Apache-2.0",
    "util-linux-locales": "GPL-2+", "vlc-l10n": "GPL-2+",
}
SETS = (("train", range(3, 100)), ("valid", range(0, 1)), ("test", range(1, 3)))  # of a hash's remainders by 100
MOST_WORDS, MOST_CHARACTERS = 60, 300

TAG = re.compile(r"</?(?:a|application|b|big|body|br|center|code|em|emphasis|filename|font|guilabel|h[1-6]|head|html|i|img|"
                 r"interface|item|li|link|list|meta|nobr|note|ol|p|para|qt|resource|small|span|strong|style|sub|subtitle|sup|"
                 r"table|td|th|title|tr|tt|u|ul|warning)(?:\s[^<>]*)?/?>", re.IGNORECASE)
ENTITY = re.compile(r"&(?:#[0-9]{1,6}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
LETTERS = re.compile(r"[^\W\d_]{2}")


def messages(contents):
    """Yields the pairs of texts of a .mo file, plural forms included."""
    order = {0x950412de: "<", 0xde120495: ">"}[struct.unpack("<I", contents[:4])[0]]
    count, texts, translations = struct.unpack(order + "8xIII", contents[:20])
    for i in range(count):
        pair = []
        for table in texts, translations:
            length, at = struct.unpack_from(order + "II", contents, table + 8 * i)
            pair.append(contents[at:at + length].decode("utf-8").split("\0"))
        english, other = pair
        english[0] = english[0].split("\4")[-1]  # what stands before is the context
        if len(english) == 1:
            yield english[0], other[0]
        elif len(other) > 1:
            yield english[0], other[0]
            yield english[1], other[-1]


def without_accelerator(text, mark, same):
    """Removes the mark before the letter of a shortcut, but not from names such as max_size, which both texts have."""
    text = re.sub(r"\s*\(%s\w\)" % mark, "", text)  # Chinese and Japanese
    marked = [word for word in text.split() if re.search(mark + r"\w", word)]
    if len(marked) == 1 and text.count(mark) == 1 and (marked[0].startswith(mark) or marked[0] not in same):
        text = text.replace(mark, "")
    return text


def clean(english, other):
    """Returns both texts as plain lines."""
    pair = [TAG.sub(" ", unicodedata.normalize("NFC", text)) for text in (english, other)]
    pair = [ENTITY.sub(lambda match: html.unescape(match.group()), text) for text in pair]
    for mark in "&_~":
        words = set(pair[0].split()) & set(pair[1].split())
        pair = [without_accelerator(text, mark, words) for text in pair]
    return [" ".join(text.replace("&&", "&").split()) for text in pair]


def wanted(english, other):
    """Whether a pair teaches to translate."""
    return english != other and all(
        LETTERS.search(text) and text.isprintable() and len(text) <= MOST_CHARACTERS and len(text.split()) <= MOST_WORDS
        for text in (english, other)) and len(other) < 4 * len(english) + 20 and len(english) < 4 * len(other) + 20


def set_of(english):
    """Which set a text belongs to: texts that differ in case and punctuation alone belong to the same."""
    plain = "".join(c for c in english.casefold() if c.isalnum())
    remainder = int(hashlib.sha256(plain.encode()).hexdigest(), 16) % 100
    return next(name for name, remainders in SETS if remainder in remainders)


def fetch(package, cache):
    """Returns the path of a package's file, which is downloaded if it is not there."""
    found = sorted(cache.glob(package + "_*.deb"))
    if not found:
        subprocess.run(["apt-get", "-q", "download", package], cwd=cache, check=True, stdout=subprocess.DEVNULL)
        found = sorted(cache.glob(package + "_*.deb"))
    return found[-1]


def read_package(path, language):
    """Yields the pairs of all .mo files of a package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", str(path), folder], check=True)
        for file in sorted(pathlib.Path(folder).glob("**/%s/LC_MESSAGES/*.mo" % language)):
            yield from messages(file.read_bytes())


def collect(language, cache):
    """Returns how often each English text has each translation, and what the packages are."""
    translations, sources = collections.defaultdict(collections.Counter), []
    for package, licence in sorted(PACKAGES.items()):
        path = fetch(package.replace("LANGUAGE", language), cache)
        before = len(translations)
        for english, other in read_package(path, language):
            english, other = clean(english, other)
            if wanted(english, other):
                translations[english][other] += 1
        sources.append("%s\t%s\t%d" % (path.name, licence, len(translations) - before))
        print(sources[-1], flush=True)
    return translations, sources


def write(out, language, translations):
    """Writes the sets, in the order of a hash; returns how many pairs each has."""
    sets = {name: [] for name, _ in SETS}
    for english, others in translations.items():
        most = max(others.values())
        sets[set_of(english)].append((english, min(other for other, times in others.items() if times == most)))
    for name, pairs in sets.items():
        pairs.sort(key=lambda pair: hashlib.sha256(pair[0].encode()).digest())
        for side, suffix in enumerate(("en", language)):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (out / ("%s.%s" % (name, suffix))).write_bytes(text.encode())
    return {name: len(pairs) for name, pairs in sets.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path, help="the folder that is written to")
    parser.add_argument("--language", default="de", help="of the translations (default: de)")
    parser.add_argument("--cache", type=pathlib.Path, help="where the packages are kept (default: OUT/packages)")
    options = parser.parse_args()
    cache = options.cache or options.out / "packages"
    for folder in options.out, cache:
        folder.mkdir(parents=True, exist_ok=True)
    translations, sources = collect(options.language, cache)
    counts = write(options.out, options.language, translations)
    (options.out / "sources.txt").write_text("\n".join(sources) + "\n", encoding="utf-8")
    print(", ".join("%s %d" % item for item in counts.items()), "pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
