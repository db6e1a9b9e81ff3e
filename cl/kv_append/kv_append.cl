/* Appends rows to the caches of keys and values: C[b,h,j,:] = rotate(N[b,h,i,:], j + position),  j = past + i.
 *
 * Arrays by kv_append_args; the caches are indexed as attention's key and value, their scales alike.
 *
 * Parameters
 *   K_TYPE V_TYPE                new keys and values: F32 F16 BF16                    (F32)
 *   KEY_CACHE_TYPE VALUE_CACHE_TYPE   F32 F16 BF16 I8 I4                              (F32)
 *   D_K, D_V                     sizes                                                (64)
 *   KEY_UNIT, VALUE_UNIT         columns of a work-item, a divisor of D_K and D_V: an I8 or I4 cache's group   (8)
 *   KEY_GROUPS, VALUE_GROUPS     1: the cache has scales                              (0)
 *   KEY_SCALE_TYPE VALUE_SCALE_TYPE   F32 F16                                         (F32)
 *   ROTATE                       1: keys are rotated                                  (0)
 *   RING, PAGED                  1: the cache is a ring; is made of pages             (0)
 *   PAST_LENGTHS, NEW_LENGTHS    1: each item has its own                             (0)
 *   BLOCK_TYPE, PAST_TYPE, NEW_TYPE   of the block table and of both lengths: I32 I64 (I32)
 * Tested: every storage type, rotated and not; plain, ring and paged.
 *
 * NDRange: (the larger number of units in a row, batch * heads * length, 2: keys, values), each rounded up at will; any
 * work-group.  An item owns one unit of one new row.  Local memory: none.  Barriers: none.  Absent arrays may be any buffers;
 * the kernel does not touch them.  Needs OpenCL C 1.2. */
#include "kv_append/args.h"
#include "lib/storage.h"
#include "rope/rope.h"

#ifndef K_TYPE
#define K_TYPE F32
#endif
#ifndef V_TYPE
#define V_TYPE F32
#endif
#ifndef KEY_CACHE_TYPE
#define KEY_CACHE_TYPE F32
#endif
#ifndef VALUE_CACHE_TYPE
#define VALUE_CACHE_TYPE F32
#endif
#ifndef D_K
#define D_K 64
#endif
#ifndef D_V
#define D_V 64
#endif
#ifndef KEY_UNIT
#define KEY_UNIT 8
#endif
#ifndef VALUE_UNIT
#define VALUE_UNIT 8
#endif
#ifndef KEY_GROUPS
#define KEY_GROUPS 0
#endif
#ifndef VALUE_GROUPS
#define VALUE_GROUPS 0
#endif
#ifndef KEY_SCALE_TYPE
#define KEY_SCALE_TYPE F32
#endif
#ifndef VALUE_SCALE_TYPE
#define VALUE_SCALE_TYPE F32
#endif
#ifndef ROTATE
#define ROTATE 0
#endif
#ifndef RING
#define RING 0
#endif
#ifndef PAGED
#define PAGED 0
#endif
#ifndef PAST_LENGTHS
#define PAST_LENGTHS 0
#endif
#ifndef NEW_LENGTHS
#define NEW_LENGTHS 0
#endif
#ifndef BLOCK_TYPE
#define BLOCK_TYPE I32
#endif
#ifndef PAST_TYPE
#define PAST_TYPE I32
#endif
#ifndef NEW_TYPE
#define NEW_TYPE I32
#endif
#if D_K % KEY_UNIT != 0 || D_V % VALUE_UNIT != 0
#error "KEY_UNIT and VALUE_UNIT must divide D_K and D_V"
#endif

/* Stores a unit.  The columns of I4 are contiguous, and both elements of a byte belong to one item. */
#define STORE_UNIT_I8(p, at, col, x, n, scale) \
    for (int c_ = 0; c_ < (n); c_++) \
    (p)[(at) + c_ * (col)] = (char)level((x)[c_], scale, 127)
#define STORE_UNIT_I4(p, at, col, x, n, scale) \
    for (int c_ = 0; c_ < (n); c_ += 2) \
    (p)[((at) + c_) >> 1] = (uchar)((level((x)[c_], scale, 7) & 15) | (level((x)[c_ + 1], scale, 7) & 15) << 4)
#define STORE_UNIT_AS(TYPE, p, at, col, x, n) \
    for (int c_ = 0; c_ < (n); c_++) \
    STORE(TYPE, p, (at) + c_ * (col), (x)[c_])
#define STORE_UNIT_F32(p, at, col, x, n, scale) STORE_UNIT_AS(F32, p, at, col, x, n)
#define STORE_UNIT_F16(p, at, col, x, n, scale) STORE_UNIT_AS(F16, p, at, col, x, n)
#define STORE_UNIT_BF16(p, at, col, x, n, scale) STORE_UNIT_AS(BF16, p, at, col, x, n)
#define LEVELS_I8 127
#define LEVELS_I4 7
#define LEVELS_F32 1
#define LEVELS_F16 1
#define LEVELS_BF16 1

/* max|x| / levels; NaN if there is a NaN or an infinity, which are recognised by their bits: rusticl (Mesa 22.3) makes 0 of
 * x * 0, whatever x is. */
static inline float unit_scale(const float *x, int n, int levels)
{
    float largest = 0.0f;
    int finite = 1;

    for (int c = 0; c < n; c++) {
        largest = fabs(x[c]) > largest ? fabs(x[c]) : largest;
        finite &= (as_uint(x[c]) & 0x7f800000u) != 0x7f800000u;
    }
    return finite ? largest / (float)levels : as_float(0x7fc00000u);
}

/* x / scale as an integer.  fmin and fmax turn a NaN into a number; its scale is NaN then. */
static inline int level(float x, float scale, int levels)
{
    return scale == 0.0f ? 0 : convert_int_rte(fmin(fmax(x / scale, (float)-levels), (float)levels));
}

/* Element d of a new key, rotated. */
static inline float key_element(const global ELEMENT(K_TYPE) *key, long row, int d, args_long position,
                                const kv_append_args *a)
{
    const float x = LOAD(K_TYPE, key, row + d * a->key.col);
#if ROTATE
    if (d < 2 * a->rope.pairs) {
        const int second = a->rope.step == 2 ? d & 1 : d >= a->rope.pairs;
        const int pair = a->rope.step == 2 ? d >> 1 : d - second * a->rope.pairs;
        const float2 r = rope_rotation(position, rope_turn(pair, &a->rope));
        const float other =
            LOAD(K_TYPE, key, row + (second ? d - a->rope.distance : d + a->rope.distance) * a->key.col);
        return second ? FMA(other, r.y, x * r.x) : FMA(x, r.x, -(other * r.y));
    }
#endif
    return x;
}

/* Where row j of a cache begins. */
static inline long cache_row(const array4 *array, long b, long h, long j, long page, const kv_append_args *a)
{
    const long row = PAGED ? j - j / a->capacity * a->capacity : RING ? j % a->capacity : j;
    return array->offset + (PAGED ? page : b) * array->batch + h * array->head + row * array->row;
}

kernel void kv_append(const global ELEMENT(K_TYPE) *key, const global ELEMENT(V_TYPE) *value,
                      const global ELEMENT(BLOCK_TYPE) *block_table, const global ELEMENT(PAST_TYPE) *past_lengths,
                      const global ELEMENT(NEW_TYPE) *new_lengths, global ELEMENT(KEY_SCALE_TYPE) *key_scale,
                      global ELEMENT(VALUE_SCALE_TYPE) *value_scale, global ELEMENT(KEY_CACHE_TYPE) *key_cache,
                      global ELEMENT(VALUE_CACHE_TYPE) *value_cache, kv_append_args a)
{
    if (a.batch == 0)
        return;

    const int unit = (int)global_id(&a.part, 0), which = (int)global_id(&a.part, 2);
    const long row = (long)global_id(&a.part, 1);
    /* No %: beside / it becomes an LLVM freeze, which Oclgrind 21.10 does not know. */
    const long bh = row / a.length, i = row - bh * a.length, b = bh / a.heads, h = bh - b * a.heads;
    if (b >= a.batch || which > 1 || unit >= (which ? D_V / VALUE_UNIT : D_K / KEY_UNIT))
        return;

    long past = a.past_length, count = a.length, page = 0;
    if (PAST_LENGTHS)
        past = LOAD_INT(PAST_TYPE, past_lengths, a.past_lengths.offset + b * a.past_lengths.stride);
    if (NEW_LENGTHS)
        count = min(count, LOAD_INT(NEW_TYPE, new_lengths, a.new_lengths.offset + b * a.new_lengths.stride));
    const long j = past + i;
    /* The checks stay in the kernel: in a function that returns whether there is a row, they made AMD's compiler spill. */
    if (past < 0 || j < 0 || i >= count)
        return;
    if (PAGED) {
        const long block = j / a.capacity;
        if (block >= a.blocks)
            return;
        page = LOAD_INT(BLOCK_TYPE, block_table,
                        a.block_table.offset + b * a.block_table.batch + block * a.block_table.col);
        if (page < 0 || page >= a.pages)
            return;
    } else if (RING ? i < count - a.capacity : j >= a.capacity) {
        return;
    }

    if (which == 0) {
        const long from = a.key.offset + b * a.key.batch + h * a.key.head + i * a.key.row;
        const long to = cache_row(&a.key_cache, b, h, j, page, &a) + unit * KEY_UNIT * a.key_cache.col;
        float x[KEY_UNIT];
        float scale = 0.0f;
        for (int c = 0; c < KEY_UNIT; c++)
            x[c] = key_element(key, from, unit * KEY_UNIT + c, j + a.position, &a);
#if KEY_GROUPS
        /* The integers belong to the scale as it is stored.  Without the fence rusticl of Mesa 26.2 takes it unrounded. */
        const long scales = cache_row(&a.key_scale, b, h, j, page, &a) + unit * a.key_scale.col;
        STORE(KEY_SCALE_TYPE, key_scale, scales, unit_scale(x, KEY_UNIT, JOIN(LEVELS_, KEY_CACHE_TYPE)));
        mem_fence(CLK_GLOBAL_MEM_FENCE);
        scale = LOAD(KEY_SCALE_TYPE, key_scale, scales);
#endif
        JOIN(STORE_UNIT_, KEY_CACHE_TYPE)(key_cache, to, a.key_cache.col, x, KEY_UNIT, scale);
    } else {
        const long from = a.value.offset + b * a.value.batch + h * a.value.head + i * a.value.row;
        const long to = cache_row(&a.value_cache, b, h, j, page, &a) + unit * VALUE_UNIT * a.value_cache.col;
        float x[VALUE_UNIT];
        float scale = 0.0f;
        for (int c = 0; c < VALUE_UNIT; c++)
            x[c] = LOAD(V_TYPE, value, from + (unit * VALUE_UNIT + c) * a.value.col);
#if VALUE_GROUPS
        const long scales = cache_row(&a.value_scale, b, h, j, page, &a) + unit * a.value_scale.col;
        STORE(VALUE_SCALE_TYPE, value_scale, scales, unit_scale(x, VALUE_UNIT, JOIN(LEVELS_, VALUE_CACHE_TYPE)));
        mem_fence(CLK_GLOBAL_MEM_FENCE);
        scale = LOAD(VALUE_SCALE_TYPE, value_scale, scales);
#endif
        JOIN(STORE_UNIT_, VALUE_CACHE_TYPE)(value_cache, to, a.value_cache.col, x, VALUE_UNIT, scale);
    }
}
