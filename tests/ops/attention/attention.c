/* Every solver computes attention of adversarial shapes and memory layouts: lengths of 1, around tile sizes, prime and
 * with no common factor; head sizes from 1 to 256; grouped heads; views with any strides.
 *
 * Holds: Meaning 7 (grouped heads, d_v != d_k, any head size), the accuracy rule, guard bands; and that a solver that
 * is asked for by name is the one that runs. */
#include "support/attention/case.h"

/* Lengths around 16, 32, 64, 128 (queries and keys of a tile) and 48, 96 (keys of a tile on CPUs).  Lengths are not
 * compiled into kernels, so one head size serves them all. */
static const attention_case lengths[] = {
    {"one of everything", ALL, .dim = {1, 1, 1, 1, 1, 1, 1}},
    {"one query", ALL, .dim = {1, 2, 2, 1, 19, 8, 8}},
    {"one key", ALL, .dim = {1, 2, 2, 19, 1, 8, 8}},
    {"tile lengths", ALL, .dim = {1, 1, 1, 32, 32, 8, 8}},
    {"tile lengths", BIG, .dim = {1, 4, 4, 64, 96, 8, 8}},
    {"tile lengths", BIG, .dim = {1, 4, 4, 128, 192, 8, 8}},
    {"tile + 1", ALL, .dim = {1, 1, 1, 33, 33, 8, 8}},
    {"tile + 1", BIG, .dim = {1, 4, 4, 17, 97, 8, 8}},
    {"tile + 1", BIG, .dim = {1, 4, 4, 65, 49, 8, 8}},
    {"tile + 1", BIG, .dim = {1, 4, 4, 129, 193, 8, 8}},
    {"tile - 1", ALL, .dim = {1, 1, 1, 15, 31, 8, 8}},
    {"tile - 1", BIG, .dim = {1, 4, 4, 63, 95, 8, 8}},
    {"tile - 1", BIG, .dim = {1, 4, 4, 127, 47, 8, 8}},
    {"prime lengths", ALL, .dim = {2, 3, 3, 5, 7, 8, 8}},
    {"prime lengths", BIG, .dim = {3, 5, 5, 37, 211, 8, 8}},
    {"prime lengths", BIG, .dim = {1, 7, 7, 157, 23, 8, 8}},
    {"no log-sum-exp", ALL, .dim = {2, 3, 3, 21, 34, 8, 8}, .no_lse = true},
    {"long", BIG, .dim = {1, 1, 1, 7, 4099, 8, 8}, .long_loops = true},
    {"many heads", BIG, .dim = {9, 11, 11, 3, 5, 8, 8}},
    {"grouped heads", ALL, .dim = {2, 6, 2, 5, 7, 8, 8}},
    {"grouped heads", BIG, .dim = {2, 6, 3, 70, 71, 8, 8}},
    {"one key/value head", ALL, .dim = {2, 5, 1, 3, 11, 8, 8}},
    {"one key/value head", BIG, .dim = {1, 8, 1, 67, 130, 8, 8}},
};

/* Each of these head sizes needs its own kernel. */
static const attention_case head_sizes[] = {
    {"head size 3", ALL, .dim = {1, 2, 1, 5, 7, 3, 3}},
    {"head size 5", FULL, .dim = {1, 2, 1, 19, 53, 5, 5}},
    {"head size 16", FULL, .dim = {1, 2, 1, 35, 101, 16, 16}},
    {"head size 31", FULL, .dim = {1, 2, 1, 35, 101, 31, 31}},
    {"head size 33", FULL, .dim = {1, 2, 1, 35, 101, 33, 33}},
    {"head size 64", BIG, .dim = {1, 2, 1, 70, 101, 64, 64}},
    {"head size 65", FULL, .dim = {1, 2, 1, 35, 101, 65, 65}},
    {"head size 96", FULL, .dim = {1, 2, 1, 35, 101, 96, 96}},
    {"head size 127", FULL, .dim = {1, 2, 1, 35, 101, 127, 127}},
    {"head size 128", FULL, .dim = {1, 2, 1, 70, 101, 128, 128}},
    {"head size 193", FULL, .dim = {1, 2, 1, 35, 101, 193, 193}},
    {"head size 255", FULL, .dim = {1, 2, 1, 35, 53, 255, 255}},
    {"head size 256", FULL, .dim = {1, 2, 1, 35, 53, 256, 256}},
    {"values longer than keys", ALL, .dim = {1, 2, 2, 6, 9, 2, 13}},
    {"values longer than keys", FULL, .dim = {1, 2, 2, 35, 53, 40, 200}},
    {"values longer than keys", FULL, .dim = {1, 2, 2, 35, 53, 1, 256}},
    {"values shorter than keys", BIG, .dim = {1, 2, 2, 35, 53, 24, 5}},
    {"values shorter than keys", FULL, .dim = {1, 2, 2, 35, 53, 192, 128}},
    {"values shorter than keys", FULL, .dim = {1, 2, 2, 35, 53, 256, 1}},
    {"head size 384", FULL, .dim = {1, 2, 1, 70, 101, 384, 384}},
    {"head size 512", FULL, .dim = {1, 2, 1, 35, 53, 512, 512}},
    {"head size 257", BIG, .dim = {1, 1, 1, 3, 5, 257, 8}},
    {"head size 513, few queries", BIG, .refused_by = BY_TILE, .dim = {1, 1, 1, 3, 5, 513, 8}},
    {"head size 513", BIG, .refused_by = BY_TILE, .dim = {1, 2, 1, 35, 53, 513, 600}},
    {"head size 2,050", FULL, .refused_by = BY_TILE, .dim = {1, 2, 1, 35, 53, 2050, 1030}},
    {"above the tuned solvers", BIG, .refused_by = BY_CPU | BY_TILE, .dim = {1, 1, 1, 9, 3, 40000, 40000},
     .long_loops = true},
};

#define FORMS(f) {f, f, f, f, FORM_PLAIN}

static const attention_case forms[] = {
    {"(batch, length, heads, size)", ALL, .dim = {2, 3, 3, 5, 7, 8, 8}, .form = FORMS(FORM_BSHD)},
    {"(batch, length, heads, size)", BIG, .dim = {2, 4, 2, 70, 101, 8, 8}, .form = FORMS(FORM_BSHD)},
    {"packed projections", ALL, .dim = {2, 3, 3, 7, 7, 8, 8}, .packed = true, .form.output = FORM_BSHD},
    {"packed projections", BIG, .dim = {2, 6, 2, 67, 67, 8, 8}, .packed = true, .form.output = FORM_BSHD},
    {"gaps", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form = FORMS(FORM_PADDED)},
    {"gaps", BIG, .dim = {2, 4, 2, 70, 101, 8, 8}, .form = FORMS(FORM_PADDED)},
    {"columns apart", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form = FORMS(FORM_SPREAD)},
    {"columns apart", BIG, .dim = {2, 4, 2, 70, 101, 8, 8}, .form = FORMS(FORM_SPREAD)},
    {"rows backwards", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form = FORMS(FORM_FLIPPED)},
    {"rows backwards", BIG, .dim = {2, 4, 2, 70, 101, 8, 8}, .form = FORMS(FORM_FLIPPED)},
    {"columns backwards", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form = FORMS(FORM_MIRRORED)},
    {"columns backwards", BIG, .dim = {2, 4, 2, 70, 101, 8, 8}, .form = FORMS(FORM_MIRRORED)},
    {"rows contiguous", BIG, .dim = {2, 4, 2, 70, 101, 8, 8}, .form = FORMS(FORM_TRANSPOSED)},
    {"rows contiguous, whole vectors of keys", BIG, .dim = {1, 2, 1, 35, 101, 24, 40}, .form = FORMS(FORM_TRANSPOSED)},
    {"rows contiguous, few queries", ALL, .dim = {1, 2, 1, 1, 37, 5, 5}, .form = FORMS(FORM_TRANSPOSED)},
    {"rows contiguous, few queries", BIG, .dim = {1, 2, 1, 3, 301, 24, 40}, .form = FORMS(FORM_TRANSPOSED)},
    {"only the query strided", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form.query = FORM_TRANSPOSED},
    {"only the key strided", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form.key = FORM_TRANSPOSED},
    {"only the value strided", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form.value = FORM_SPREAD},
    {"only the output strided", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form.output = FORM_TRANSPOSED},
    {"keys shared by the batch", ALL, .dim = {3, 2, 2, 5, 7, 8, 8},
     .form = {.key = FORM_SHARED_FIRST, .value = FORM_SHARED_FIRST}},
    {"keys shared by the heads", ALL, .dim = {2, 3, 3, 5, 7, 8, 8},
     .form = {.key = FORM_SHARED_SECOND, .value = FORM_SHARED_SECOND}},
    {"one key for all", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form = {.key = FORM_SHARED_ROWS}},
    {"one query for all", ALL, .dim = {2, 2, 2, 5, 7, 8, 8}, .form = {.query = FORM_SHARED_ROWS}},
    {"one query for the batch", BIG, .dim = {3, 4, 4, 33, 65, 8, 8}, .form = {.query = FORM_SHARED_FIRST}},
};

int main(int argc, char **argv)
{
    attention_add(lengths, COUNT_OF(lengths));
    attention_add(head_sizes, COUNT_OF(head_sizes));
    attention_add(forms, COUNT_OF(forms));
    return suite_run("attention shapes", argc, argv);
}
