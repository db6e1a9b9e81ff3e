/* Dropout on every device: formula, arrays and parameters as dropout/dropout.h says.
 *
 * NDRange: (pieces * W), local (W); a work-group owns a piece of chunk columns, and item l those whose places are in the
 * piece's blocks of four l, l + W, ...: items that run together touch neighbouring memory.
 * Local memory: none.  Barriers: none.  Needs OpenCL C 1.2. */
#include "dropout/dropout.h"
#include "lib/philox.h"

#if LANES != 4
#error "LANES is 4, the words of a block"
#endif

kernel void dropout_generic(DROPOUT_PARAMETERS)
{
    if (a.pieces == 0)
        return;

    const uint2 key = (uint2)((uint)a.seed, (uint)(a.seed >> 32));
    row_piece piece;
    find_piece(&piece, (args_long)group_id(&a.part, 0), x, residual, y, &a);
    const args_long end = piece.place + piece.last;
    for (args_long p = (piece.place + piece.first) / 4 * 4 + (args_long)get_local_id(0) * 4; p < end;
         p += (args_long)get_local_size(0) * 4) {
        const uint4 words = philox((uint4)((uint)p / 4, (uint)(p >> 32), 0, a.offset), key);
        const int c = (int)(p - piece.place);
        if (c >= piece.first && c + 4 <= piece.last) {
            drop(&piece, c, 4, words, &a);
        } else {
            uint word[4];
            vstore4(words, 0, word);
            for (int i = max(piece.first - c, 0); i < min(piece.last - c, 4); i++)
                drop(&piece, c + i, 1, (uint4)(word[i]), &a);
        }
    }
}
