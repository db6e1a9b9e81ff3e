"""In which batches `clattn train` shows its texts to a model, for programs that shall do the same, such as a peer in PyTorch.

src/tool/train/batches.c has the rules; tests/text/test_train.py holds the two together."""
MASK = 0xffffffff


def philox(counter, seed):
    """Philox4x32-10 (Salmon et al. 2011): four random words."""
    c, k = list(counter), [seed & MASK, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & MASK, first >> 32 ^ c[3] ^ k[1], first & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


def buckets(longest):
    """Returns the lengths that texts are padded to."""
    lengths, length = [], 8
    while length < longest and len(lengths) < 23:
        lengths.append(length)
        length = length + 8 if length < 32 else length // 2 * 3 if length & length - 1 == 0 else length // 3 * 4
    return lengths + [longest]


def shuffle(items, seed, epoch, stream):
    for i in range(len(items), 1, -1):
        word = philox((i, stream, epoch & MASK, epoch >> 32), seed)
        other = (word[1] << 32 | word[0]) % i
        items[i - 1], items[other] = items[other], items[i - 1]


def batches(sizes, tokens, longest, seed, epoch):
    """Returns the epoch's batches, each the length that it is padded to and the indices of its texts.

    `sizes` has a number for each text: the pieces of its longer side, the source with its end, or the target with either begin
    or end.  `tokens` is --batch-tokens, `longest` --length."""
    lengths = buckets(longest)
    members = [[] for _ in lengths]
    for index, size in enumerate(sizes):
        members[next(i for i, length in enumerate(lengths) if size <= length)].append(index)
    cut = []
    for bucket, (length, items) in enumerate(zip(lengths, members)):
        rows = min(max(tokens // length, 1), 65536)
        shuffle(items, seed, epoch, bucket)
        cut += [(length, items[i:i + rows]) for i in range(0, len(items), rows)]
    shuffle(cut, seed, epoch, 24)
    return cut
