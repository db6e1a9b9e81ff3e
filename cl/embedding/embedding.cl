/* Embedding: rows of tables for ids, added up.
 *
 *   y[b,s,c] = scale * table[ids[b,s],c]  (+ position row p, column c)  (+ segment_table[segments[b,s],c])
 *   p = position + offsets[b] (or 0) + s;  the sinusoids' row p has sin(p w) at 2 i and cos(p w) at 2 i + 1,
 *   w = 10000^(-2 i / size)
 *
 * Layouts, with any strides in elements (args: embedding/args.h)
 *   T[r,c] of each table      table[a.T.offset + r*a.T.row + c*a.T.col]
 *   ids[b,s], segments[b,s]   ids[a.ids_offset + b*a.ids_batch + s*a.ids_row], int
 *   offsets[b]                offsets[a.offsets_offset + b*a.offsets_batch], int
 *   y[b,s,c]                  y[a.y.offset + b*a.y.batch + s*a.y.row + c*a.y.col]
 * Row r of `table` is that of id first_row + r, and an id below all_rows that has none there adds 0.
 * Absent arrays may be any buffers; the kernel does not touch them.  If a table has no row for an id, a position or a
 * segment, the whole row of y is NaN.  The nearest rows are read nevertheless: llvmpipe (Mesa 22.3) also makes loads whose
 * condition is false, and crashes if they are out of bounds.
 *
 *   macro                            meaning                                                  allowed        tested
 *   TABLE_TYPE, SEGMENT_TYPE, Y_TYPE, POSITION_TABLE_TYPE   storage types                F32 F16 BF16   each, mixed
 *   POSITIONS                        0: none; 1: sinusoids; 2: a table                        0, 1, 2        each
 *   SEGMENTS                         whether there are segments                               0, 1           both
 *   UNIT_STRIDE                      the cols of y and of the present tables are 1          0, 1           both
 *   WHOLE_VECTORS                    size is a multiple of LANES                              0, 1           both
 *   LANES                            vector width                                             4, 8, 16       4 16
 *
 * NDRange: (groups * W), local (W).  A work-group owns batch * length / groups neighbouring places (b, s), item l of it
 * their columns l*LANES ... + LANES - 1, and so on each W*LANES further.  For each vector of columns an item walks all
 * places, so that the sinusoids' angles are computed once.
 * Local memory: none.  Barriers: none.  State is float: scale * T rounded, then one rounding for each addition and one on
 * storing.  Needs OpenCL C 1.2. */
#include "embedding/args.h"
#include "lib/gather.h"
#include "rope/rotations.h"

#ifndef TABLE_TYPE
#define TABLE_TYPE F32
#endif
#ifndef POSITION_TABLE_TYPE
#define POSITION_TABLE_TYPE F32
#endif
#ifndef SEGMENT_TYPE
#define SEGMENT_TYPE F32
#endif
#ifndef POSITIONS
#define POSITIONS 0
#endif
#ifndef SEGMENTS
#define SEGMENTS 0
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef WHOLE_VECTORS
#define WHOLE_VECTORS 0
#endif

#if POSITIONS < 0 || POSITIONS > 2 || (SEGMENTS != 0 && SEGMENTS != 1)
#error "POSITIONS must be 0, 1 or 2, and SEGMENTS 0 or 1"
#endif

DEFINE_GATHER(gather_table, TABLE_TYPE)
DEFINE_GATHER(gather_position, POSITION_TABLE_TYPE)
DEFINE_GATHER(gather_segment, SEGMENT_TYPE)
DEFINE_SCATTER(scatter_y, Y_TYPE)

#define COL(array) (UNIT_STRIDE ? 1 : (array).col)

/* The table row nearest to `row`. */
static inline args_long nearest_row(args_long row, int rows)
{
    return clamp(row, (args_long)0, (args_long)rows - 1);
}

kernel void embedding(const global int *ids, const global ELEMENT(TABLE_TYPE) *table,
                      const global ELEMENT(POSITION_TABLE_TYPE) *position_table, const global int *offsets,
                      const global int *segments, const global ELEMENT(SEGMENT_TYPE) *segment_table,
                      global ELEMENT(Y_TYPE) *y, embedding_args a)
{
    if (a.batch == 0)
        return;

    args_long end;
    const args_long first = share_of_group(&a.part, (args_long)a.batch * a.length, &end);
    const int first_item = (int)(first / a.length), first_place = (int)(first - (args_long)first_item * a.length);
    const int width = (int)get_local_size(0) * LANES;
    const bool have_rows =
        a.all_rows > 0 && (POSITIONS != 2 || a.position_rows > 0) && (!SEGMENTS || a.segment_rows > 0);

    for (int c = (int)get_local_id(0) * LANES; c < a.size; c += width) {
        const int count = WHOLE_VECTORS ? LANES : a.size - c;
        int b = first_item, s = first_place;
#if POSITIONS == 1
        ulong lane[LANES];
        for (int l = 0; l < LANES; l++)
            lane[l] = rope_turn((min(c + l, a.size - 1)) >> 1, &a.rope);
        const ulongv turns = VLOAD(0, lane);
#endif
        for (args_long place = first; place < end; place++) {
            const uint id = (uint)ids[a.ids_offset + b * a.ids_batch + s * a.ids_row]; /* large where it is below 0 */
            const uint row = id - (uint)a.first_row;
            const int own = row < (uint)a.rows;
            int found = id < (uint)a.all_rows;
            /* Combined by &=, because Mesa 22.3 loses some of `found && ...` in a loop. */
            floatv v = (floatv)(NAN);
#if POSITIONS
            args_long position = a.position + s;
            if (a.has_offsets)
                position += offsets[a.offsets_offset + b * a.offsets_batch];
#endif
#if POSITIONS == 2
            const args_long position_row = nearest_row(position, a.position_rows);
            found &= position_row == position;
#endif
#if SEGMENTS
            const args_long segment = segments[a.segments_offset + b * a.segments_batch + s * a.segments_row];
            const args_long segment_row = nearest_row(segment, a.segment_rows);
            found &= segment_row == segment;
#endif
            if (have_rows) {
                v = (floatv)(0.0f);
                if (a.rows > 0)
                    v = gather_table(table + a.table.offset + min(row, (uint)a.rows - 1) * a.table.row, c, COL(a.table),
                                     UNIT_STRIDE, count) *
                        a.scale;
                v = select((floatv)(0.0f), v, (intv)(-own));
#if POSITIONS == 2
                v += gather_position(position_table + a.position_table.offset + position_row * a.position_table.row, c,
                                     COL(a.position_table), UNIT_STRIDE, count);
#elif POSITIONS == 1
                rope_rotations rotation;
                rope_find_rotations(&rotation, position, turns);
                v += select(rotation.sines, rotation.cosines, (LANE_INDEX & 1) != 0);
#endif
#if SEGMENTS
                v += gather_segment(segment_table + a.segment_table.offset + segment_row * a.segment_table.row, c,
                                    COL(a.segment_table), UNIT_STRIDE, count);
#endif
                v = select((floatv)(NAN), v, (intv)(-found));
            }
            scatter_y(y + a.y.offset + b * a.y.batch + s * a.y.row, c, COL(a.y), UNIT_STRIDE, count, v);
            s++;
            b += s == a.length;
            s = s == a.length ? 0 : s;
        }
    }
}
