/* The user's score and mask functions get the right arguments and buffers, alone and with all other features, and share no
 * macro with the kernels.
 *
 * Holds: score_mod, mask_mod, user_dtype of include/clattn/attention.h, against the same functions in C. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention/case.h"

#define SCORE "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n"
#define DROP "int mask_mod(int batch, int head, int query, int key, user_data user)\n"

/* ---- functions, each in OpenCL C and in C ---- */

static double indices_score(const mod_call *c, double score)
{
    return score + 0.5f * c->b - 0.25f * c->h + 0.125f * c->i - 0.0625f * c->j;
}

static const attention_mod indices = {
    .score_source = SCORE "{ return score + 0.5f * batch - 0.25f * head + 0.125f * query - 0.0625f * key; }",
    .score = indices_score};

static bool checkered_mask(const mod_call *c)
{
    return (c->b + c->h + c->i + c->j) % 3 != 1;
}

static const attention_mod checkered = {
    .mask_source =
        "/* a comment */\n" DROP "{\n    return (batch + head + query + key) % 3 != 1;\n} // no newline after this",
    .mask = checkered_mask};

static double item_score(const mod_call *c, double score)
{
    return score * (c->i + c->position >= c->j ? 1 : 0.5f) + 0.01f * c->queries;
}

static bool item_mask(const mod_call *c)
{
    return c->j != c->keys - 1 || c->i == 0;
}

static const attention_mod item = {
    .score_source = "static float halved(float x) { return 0.5f * x; }\n" SCORE
                    "{ return (query + user.position >= key ? score : halved(score)) + 0.01f * user.query_length; }\n",
    .mask_source = DROP "{ return key != user.key_length - 1 || query == 0; }\n",
    .score = item_score,
    .mask = item_mask};

static double element(const mod_call *c, int buffer, int at)
{
    return array_get(&c->user[buffer], (size_t[]){(size_t)at});
}

static double buffers_score(const mod_call *c, double score)
{
    return score * c->scalar[0] + element(c, 0, c->j) * c->scalar[3] + element(c, 1, c->i) -
           0.5f * element(c, 2, c->h) + c->scalar[1] + c->scalar[2];
}

static bool buffers_mask(const mod_call *c)
{
    return element(c, 3, c->j % 5) <= 2;
}

static const attention_mod buffers = {
    .score_source =
        SCORE "{\n"
              "    return score * user.scalar0 + user.buffer0[key] * user.scalar3 + vload_half(query, user.buffer1)\n"
              "         - 0.5f * as_float((uint)user.buffer2[head] << 16) + user.scalar1 + user.scalar2;\n}\n",
    .mask_source = DROP "{ return user.buffer3[key % 5] <= 2; }",
    .score = buffers_score,
    .mask = buffers_mask,
    .user = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16, CLATTN_DTYPE_I64},
    .elements = {67, 35, 4, 5},
    .scalar = {1.5f, 0.25f, -0.5f, 0.125f}};

static double integers_score(const mod_call *c, double score)
{
    return score + 0.5f * element(c, 1, c->j) + 0.25f * element(c, 2, c->j) - 0.125f * element(c, 3, c->i);
}

/* buffer0 is not bound. */
static const attention_mod integers = {.score_source =
                                           SCORE "{ return score + 0.5f * user.buffer1[key] + 0.25f * user.buffer2[key]"
                                                 " - 0.125f * user.buffer3[query]; }",
                                       .score = integers_score,
                                       .user = {CLATTN_DTYPE_NONE, CLATTN_DTYPE_I8, CLATTN_DTYPE_U8, CLATTN_DTYPE_I32},
                                       .elements = {0, 67, 67, 35}};

static bool nothing_mask(const mod_call *c)
{
    return c->i % 2 == 0;
}

static const attention_mod every_other = {.mask_source = DROP "{ return query % 2 == 0 ? 0x100 : 0; }",
                                          .mask = nothing_mask};

static double special_score(const mod_call *c, double score)
{
    return c->i == 2 && c->j == 3 ? NAN : c->i == 3 && c->j == 1 ? INFINITY : c->j == 2 ? -INFINITY : score;
}

static const attention_mod special = {.score_source = SCORE
                                      "{ return query == 2 && key == 3 ? NAN : query == 3 && key == 1 ? INFINITY\n"
                                      "       : key == 2 ? -INFINITY : score; }",
                                      .score = special_score};

static double macros_score(const mod_call *c, double score)
{
    return score + 0.5f * (c->j % 3);
}

static bool macros_mask(const mod_call *c)
{
    return c->i - c->j < 4 && c->j <= c->i;
}

/* Neither text redefines a macro of the library's or sees one, whatever its spelling; its pragma ends with it. */
static const attention_mod macros = {
    .score_source = "#define WINDOW 3\n#define CAUSAL 1\n#de\\\nfine D_K 1\n%:define LANES 1\n#define SOFTCAP 0.5f\n"
                    "/*\n*/ #define LOAD(x) x\n#define query_length 3\n#undef LSE\n#undef LOG2E\n#undef MASK_MOD\n"
                    "#pragma OPENCL FP_CONTRACT ON\nenum { one = CAUSAL };\n" SCORE
                    "{ return LOAD(score) * one + SOFTCAP * (key % WINDOW); }\n#define D_V 1 // \\",
    .mask_source = "#undef WINDOW\n#define WINDOW 4 /* the usual name */\n"
                   "#if defined FUSED || defined MASK_MOD || defined USER0 || defined K_TYPE || defined GIVEN\n"
                   "#error the library's macros are seen\n#endif\n" DROP
                   "{ return query - key < WINDOW && key <= query; }\n#define kernels",
    .score = macros_score,
    .mask = macros_mask};

static const attention_case cases[] = {
    {"macros named as the library's", ALL, LITTLE, .mod = &macros, .inject = INJECT_MASKED},
    {"macros named as the library's", BIG | TILE, MEDIUM, .mod = &macros},
    {"score by indices", ALL, LITTLE, .mod = &indices},
    {"score by indices", BIG | TILE, MEDIUM, .mod = &indices},
    {"score by indices, shorter", BIG, MEDIUM, .mod = &indices, .shorter = true, .actual = {1, 34, 33},
     .inject = INJECT_MASKED},
    {"mask by indices", ALL, LITTLE, .mod = &checkered, .inject = INJECT_MASKED},
    {"mask by indices", BIG | TILE, MEDIUM, .mod = &checkered, .inject = INJECT_MASKED},
    {"by the item, bottom-right", ALL, LITTLE, .mod = &item, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(3, 5), .keys = LIST(9, 4)}, .inject = INJECT_MASKED},
    {"by the item, bottom-right", BIG, MEDIUM, .mod = &item, AT(BOTTOM_RIGHT, 0),
     .list = {.queries = LIST(35, 20), .keys = LIST(30, 66)}, .inject = INJECT_MASKED},
    {"buffers and scalars", ALL, LITTLE, .mod = &buffers, .inject = INJECT_MASKED},
    {"buffers and scalars", BIG, MEDIUM, .mod = &buffers, .inject = INJECT_MASKED},
    {"buffers of integers", BIG, MEDIUM, .mod = &integers},
    {"mask of whole rows", ALL, LITTLE, .mod = &every_other},
    {"mask of whole rows, sinks, entropy", BIG, MEDIUM, .mod = &every_other, .sinks = true, .entropy = true},
    {"NaN and infinite scores", ALL, LITTLE, .mod = &special},
    {"scores from a function, all else, biased", ALL, LITTLE, .mod = &item, .softcap = 2, .bias = MASK_FLOAT,
     .alibi = 2, .mask = MASK_BOOL, .causal = true, AT(EXPLICIT, 4), .scores = SCORES_OF(BIASED),
     .inject = INJECT_MASKED},
    {"scores from a function, all else, biased", BIG, MEDIUM, .mod = &item, .softcap = 2, .bias = MASK_FLOAT,
     .alibi = 2, .mask = MASK_BOOL, .causal = true, AT(EXPLICIT, 40), .scores = SCORES_OF(BIASED),
     .inject = INJECT_MASKED},
    {"float16, pages, probabilities", BIG, .dim = {2, 4, 2, 9, 40, 8, 8}, .mod = &indices,
     .type = {.query = CLATTN_DTYPE_F16, .key = CLATTN_DTYPE_F16, .value = CLATTN_DTYPE_F16}, PAGED(41, 4),
     .list.keys = LIST(33, 40), .scores = SCORES_OF(PROBABILITIES)},
    {"a ring, the keys' own numbers", BIG, .dim = {2, 4, 2, 3, 8, 8, 8}, .mod = &indices,
     .cache = CLATTN_CACHE_KIND_RING, .shorter = true, .actual = {2, 3, 29}},
    {"float64 by way of float", FULL, MEDIUM, .mod = &indices, .type = FOUR(CLATTN_DTYPE_F64)},
};

int main(int argc, char **argv)
{
    attention_add_frugal(cases, COUNT_OF(cases));
    return suite_run("attention mods", argc, argv);
}
