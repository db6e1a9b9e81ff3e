/* One work-group of one warpgroup: what engine/nvidia/wgmma.h says of places, for tests/test_matrix.c.
 *
 *   places      (lane, float): where in C it stands, WGMMA_N * row + column
 *   descriptors (2): of a tile at byte AT whose rows are SPAN bytes, LEADING and STRIDE apart; and of one at the 2,048th byte
 *               of the array that begins there
 *   elements    (WGMMA_N, 16): what a product finds of that tile, elements being their own numbers in the array of 32 KiB */
#include "lib/storage.h"
#include "engine/fragment.h"
#include "engine/nvidia/wgmma.h"

#define WORDS 8192

kernel __attribute__((reqd_work_group_size(WGMMA_LANES, 1, 1))) void
wgmma_places(global int *places, global ulong *descriptors, global uint *elements)
{
    local uint4 tiles[WORDS / 4] __attribute__((aligned(1024)));
    const int lane = get_local_id(0);
    const ulong descriptor = wgmma_descriptor(AT, LEADING, STRIDE, SPAN);

    for (int n = lane; n < WORDS; n += WGMMA_LANES)
        ((local uint *)tiles)[n] = 2 * n | (2 * n + 1) << 16;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 0; n < WGMMA_N / 2; n++)
        places[lane * (WGMMA_N / 2) + n] = wgmma_c_row(lane, n) * WGMMA_N + wgmma_c_column(lane, n);
    for (int n = lane; n < WGMMA_N * 16; n += WGMMA_LANES)
        elements[n] = as_uint(wgmma_element(tiles, descriptor, WGMMA_B_TRANSPOSED, n >> 4, n & 15)) >> 16;
    if (lane == 0) {
        descriptors[0] = descriptor;
        descriptors[1] = wgmma_descriptor(wgmma_address(tiles, tiles + 128), LEADING, STRIDE, SPAN);
    }
}
