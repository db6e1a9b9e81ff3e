#include "support/attention/backward_mods.h"

#include <math.h>

static double bent_score(const mod_call *c, double score)
{
    (void)c;
    return 2 * tanh(score / 2) + score / 4;
}

static double bent_grad(const mod_call *c, double score)
{
    const double t = tanh(score / 2);
    (void)c;
    return 1.25 - t * t;
}

static bool bent_mask(const mod_call *c)
{
    return (c->i + c->j) % 4 != 1;
}

const attention_mod backward_bent = {.score_source = SCORE "{ return 2 * tanh(score / 2) + score / 4; }",
                                     .mask_source = DROP "{ return (query + key) % 4 != 1; }",
                                     .grad_source =
                                         GRAD "{\n    const float t = tanh(score / 2);\n"
                                              "    return query < user.query_length ? 1.25f - t * t : NAN;\n}\n",
                                     .score = bent_score,
                                     .mask = bent_mask,
                                     .grad = bent_grad};

static double bend(const mod_call *c)
{
    return array_get(&c->user[0], (size_t[]){(size_t)c->j}) * c->scalar[1] + 0.125 * c->h + 0.0625 * c->b;
}

static double pairs_score(const mod_call *c, double score)
{
    return score + bend(c) * score * score + 0.25 * array_get(&c->user[2], (size_t[]){(size_t)(c->i - c->j)});
}

static double pairs_grad(const mod_call *c, double score)
{
    return 1 + 2 * bend(c) * score;
}

/* They read no element of buffer2 that is there if the key lies behind the query: such pairs are not attended. */
const attention_mod backward_pairs = {
    .score_source = "static float bend(int batch, int head, int key, user_data user)\n"
                    "{ return user.buffer0[key] * user.scalar1 + 0.125f * head + 0.0625f * batch; }\n" SCORE
                    "{\n    return score + bend(batch, head, key, user) * score * score\n"
                    "         + 0.25f * user.buffer2[query - key];\n}\n",
    .grad_source = GRAD "{ return 1 + 2 * bend(batch, head, key, user) * score + 0 * user.buffer2[query - key]; }",
    .score = pairs_score,
    .grad = pairs_grad,
    .user = {CLATTN_DTYPE_F32, CLATTN_DTYPE_NONE, CLATTN_DTYPE_I8},
    .elements = {131, 0, 150},
    .scalar = {0, 0.125f}};

static double cut_score(const mod_call *c, double score)
{
    return (c->i + c->j) % 3 == 1 ? -INFINITY : score * score;
}

static double cut_grad(const mod_call *c, double score)
{
    return (c->i + c->j) % 3 == 1 ? NAN : 2 * score;
}

const attention_mod backward_cut = {.score_source =
                                        SCORE "{ return (query + key) % 3 == 1 ? -INFINITY : score * score; }",
                                    .grad_source = GRAD "{ return (query + key) % 3 == 1 ? NAN : 2 * score; }",
                                    .score = cut_score,
                                    .grad = cut_grad};

static double same_score(const mod_call *c, double score)
{
    (void)c;
    return score;
}

static double steep_grad(const mod_call *c, double score)
{
    (void)score;
    return c->i == 2 && c->j == 3 ? INFINITY : c->i == 3 && c->j == 1 ? NAN : 1;
}

const attention_mod backward_steep = {
    .score_source = SCORE "{ return score; }",
    .grad_source = GRAD "{ return query == 2 && key == 3 ? INFINITY : query == 3 && key == 1 ? NAN : 1.0f; }",
    .score = same_score,
    .grad = steep_grad};
