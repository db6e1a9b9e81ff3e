/* Dropout on CPU devices: formula, arrays and parameters as dropout/dropout.h says.
 *
 * NDRange: (work-groups of 1 item); an item owns pieces / groups neighbouring pieces.  Its lanes are neighbouring blocks of
 * four places while it generates words, and neighbouring columns while it drops:
 *
 *   words of block l    w0[l] w1[l] w2[l] w3[l]
 *   word[]              w0[0] w1[0] w2[0] w3[0] w0[1] w1[1] ...    4 * LANES of them, in the order of places
 *
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2.  dropout_generic takes over if a device limits loops. */
#include "dropout/dropout.h"
#include "lib/philox_vector.h"
#include "lib/shuffle.h"

#define WORDS (4 * LANES)

/* The words of `WORDS` places from p on, a multiple of 4; places beyond a multiple of 2^32 count on. */
static inline void make_words(uint *word, args_long p, uint2 key, const dropout_args *a)
{
    const ulongv place = (ulongv)((ulong)p) + JOIN(convert_ulong, LANES)(LANE_INDEX) * 4;
    uintv c[4] = {JOIN(convert_uint, LANES)(place & 0xffffffffu) / 4, JOIN(convert_uint, LANES)(place >> 32),
                  (uintv)(0), (uintv)(a->offset)};
    philoxv(c, key);
    const floatv w0 = AS_FLOATV(c[0]), w1 = AS_FLOATV(c[1]), w2 = AS_FLOATV(c[2]), w3 = AS_FLOATV(c[3]);
    const floatv even_low = zip_low(w0, w2), odd_low = zip_low(w1, w3);
    const floatv even_high = zip_high(w0, w2), odd_high = zip_high(w1, w3);
    VSTORE(AS_UINTV(zip_low(even_low, odd_low)), 0, word);
    VSTORE(AS_UINTV(zip_high(even_low, odd_low)), 1, word);
    VSTORE(AS_UINTV(zip_low(even_high, odd_high)), 2, word);
    VSTORE(AS_UINTV(zip_high(even_high, odd_high)), 3, word);
}

GROUP_SIZE(1, 1, 1)
kernel void dropout_cpu(DROPOUT_PARAMETERS)
{
    if (a.pieces == 0)
        return;

    const uint2 key = (uint2)((uint)a.seed, (uint)(a.seed >> 32));
    uint word[WORDS + LANES]; /* the last vector may begin at any of the words */
    args_long end;
    VSTORE((uintv)(0), 4, word);
    for (args_long number = share_of_group(&a.part, a.pieces, &end); number < end; number++) {
        row_piece piece;
        find_piece(&piece, number, x, residual, y, &a);
        /* The first words belong to columns in front of the piece if it does not begin with a block. */
        for (int c = piece.first - (int)((piece.place + piece.first) & 3); c < piece.last; c += WORDS) {
            make_words(word, piece.place + c, key, &a);
            const int count = min(piece.last - c, WORDS);
            for (int i = max(piece.first - c, 0); i < count; i += LANES)
                drop(&piece, c + i, count - i, VLOAD(0, word + i), &a);
        }
    }
}
