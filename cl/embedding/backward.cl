/* The gradient of an embedding's table: each row is the sum of the rows of y's gradient at the places that have its id.
 *
 *   table_gradient[r,c] = scale * (sum of y_gradient[b,s,c] over all places (b,s) with ids[b,s] = r), or +0 if there is none
 *
 * Layouts, with any strides in elements (args: embedding/args.h)
 *   table_gradient[r,c]     table_gradient[a.table.offset + r*a.table.row + c*a.table.col]
 *   ids[b,s]                ids[a.ids_offset + b*a.ids_batch + s*a.ids_row], int
 *   y_gradient[b,s,c]       y_gradient[a.y.offset + b*a.y.batch + s*a.y.row + c*a.y.col]
 *   count[r]                lists[a.lists_offset + r], how many places have the id r
 *   first[r]                lists[a.lists_offset + a.rows + r], the first of them
 *   next[p]                 lists[a.lists_offset + 2*a.rows + p], the next place with the id of place p = b*length + s
 * Row r is that of id first_row + r.  An id that is not in the table is in no list.
 *
 *   macro                             meaning                                        allowed        tested
 *   TABLE_TYPE, Y_TYPE                storage types of the gradients                 F32 F16 BF16   each, mixed
 *   UNIT_STRIDE                       the cols of both gradients are 1               0, 1           both
 *   VECTORS                           vectors of an item for one walk along a list   1 ... 8        1 4
 *   LANES                             vector width                                   4, 8, 16       4 16
 *
 * embedding_link makes the lists.  NDRange: (groups * W), local (W).  Each item owns rows / (groups * W) neighbouring
 * rows and walks all ids from the last to the first, so no two items touch one list, and places ascend.
 *
 * embedding_backward adds.  NDRange: (groups * W), local (W).  A work-group owns rows / groups neighbouring rows, item
 * l of it VECTORS vectors of columns, W*LANES apart, from l*LANES on, and so on each VECTORS*W*LANES further.
 *
 * Local memory: none.  Barriers: none.  State is float, and places are added in their order: RUN of them to a sum, RUN
 * such sums to a second one, and these to a third one, so that n places take at most 2*RUN + n / (RUN*RUN) roundings.
 * Needs OpenCL C 1.2. */
#include "embedding/args.h"
#include "lib/gather.h"

#ifndef TABLE_TYPE
#define TABLE_TYPE F32
#endif
#ifndef Y_TYPE
#define Y_TYPE F32
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef VECTORS
#define VECTORS 1
#endif

#if VECTORS < 1 || VECTORS > 8
#error "VECTORS must be 1 to 8"
#endif

#define RUN 32
#define COL(array) (UNIT_STRIDE ? 1 : (array).col)

DEFINE_GATHER(gather_y, Y_TYPE)
DEFINE_SCATTER(scatter_table, TABLE_TYPE)

kernel void embedding_link(const global int *ids, global int *lists, embedding_backward_args a)
{
    if (a.rows == 0)
        return;

    const args_long item = (args_long)global_id(&a.part, 0);
    const args_long items = (args_long)a.part.groups[0] * (args_long)get_local_size(0);
    const int begin = (int)(item * a.rows / items), end = (int)((item + 1) * a.rows / items);
    global int *count = lists + a.lists_offset, *first = count + a.rows, *next = first + a.rows;

    for (int r = begin; r < end; r++)
        count[r] = first[r] = 0;
    if (begin == end)
        return;
    for (int b = a.batch - 1; b >= 0; b--)
        for (int s = a.length - 1; s >= 0; s--) {
            const args_long row = (args_long)ids[a.ids_offset + b * a.ids_batch + s * a.ids_row] - a.first_row;
            const int r = (int)clamp(row, (args_long)begin, (args_long)end - 1);
            if (r == row) {
                next[b * a.length + s] = first[r];
                first[r] = b * a.length + s;
                count[r]++;
            }
        }
}

/* Adds `from` to `to` and sets it to 0. */
static inline void move_sum(floatv *to, floatv *from)
{
    *to += *from;
    *from = (floatv)(0.0f);
}

/* Stores VECTORS vectors of columns from c on of a row that has `count` places, from `place` on.  The loop counts
 * because Mesa 22.3 loses passes of one that ends where a list does. */
static inline void add_list(const global ELEMENT(Y_TYPE) *y, const global int *next, int count, int place, int c,
                            int width, global ELEMENT(TABLE_TYPE) *row, const embedding_backward_args *a)
{
    floatv run[VECTORS], runs[VECTORS], total[VECTORS];

    for (int v = 0; v < VECTORS; v++)
        run[v] = runs[v] = total[v] = (floatv)(0.0f);
    for (int n = 1; n <= count; n++, place = next[place]) {
        const int b = place / a->length, s = place - b * a->length;
        const global ELEMENT(Y_TYPE) *from = y + b * a->y.batch + s * a->y.row;
        for (int v = 0; v < VECTORS; v++) {
            const int at = c + v * width;
            if (at < a->size)
                run[v] += gather_y(from, at, COL(a->y), UNIT_STRIDE, a->size - at);
        }
        if (n % RUN == 0) {
            for (int v = 0; v < VECTORS; v++)
                move_sum(&runs[v], &run[v]);
            if (n % (RUN * RUN) == 0)
                for (int v = 0; v < VECTORS; v++)
                    move_sum(&total[v], &runs[v]);
        }
    }
    const float scale = count > 0 ? a->scale : 0.0f; /* +0 also if the scale is negative */
    for (int v = 0; v < VECTORS; v++) {
        const int at = c + v * width;
        if (at < a->size)
            scatter_table(row, at, COL(a->table), UNIT_STRIDE, a->size - at, (total[v] + (runs[v] + run[v])) * scale);
    }
}

kernel void embedding_backward(const global ELEMENT(Y_TYPE) *y_gradient, const global int *lists,
                               global ELEMENT(TABLE_TYPE) *table_gradient, embedding_backward_args a)
{
    if (a.rows == 0)
        return;

    args_long end;
    const args_long begin = share_of_group(&a.part, a.rows, &end);
    const int width = (int)get_local_size(0) * LANES;
    const global int *count = lists + a.lists_offset, *first = count + a.rows, *next = first + a.rows;

    for (args_long r = begin; r < end; r++)
        for (int c = (int)get_local_id(0) * LANES; c < a.size; c += VECTORS * width)
            add_list(y_gradient + a.y.offset, next, count[r], first[r], c, width,
                     table_gradient + a.table.offset + r * a.table.row, &a);
}
