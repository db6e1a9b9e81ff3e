/* Matrix products as table rows. */
#ifndef TESTS_SUPPORT_OPS_MATMUL_CASE_H
#define TESTS_SUPPORT_OPS_MATMUL_CASE_H

#include "support/job.h"

/* Solvers are bits; matmul_solvers has their names by bit number. */
enum {
    MATMUL_GENERIC = 1,
    MATMUL_CPU = 2,
    MATMUL_TILE = 4,
    MATMUL_CLBLAST = 8,
    MATMUL_CPU_BF16 = 16,
    MATMUL_CPU_AMX = 32,
    MATMUL_MATRIX = 64,
    MATMUL_EMULATED = 63 * 128, /* one for each matrix engine */
    MATMUL_WGMMA = 32 * 128,    /* one of these */
    MATMUL_OWN_WGMMA = 64 * 128 /* the device's own, as MATMUL_MATRIX is */
};
#define MATMUL_SOLVERS 4 /* the first ones, which take float32 */
#define MATMUL_ALL_SOLVERS 14
extern const char *const matmul_solvers[MATMUL_ALL_SOLVERS];

/* What the inputs get for a second run; results that do not depend on it must keep every bit. */
typedef enum matmul_inject {
    MATMUL_NOTHING,
    MATMUL_A_NAN, /* in the middle of A's first row; changes that row of C */
    MATMUL_A_INF,
    MATMUL_B_NAN,         /* in the middle of B's last column; changes that column of C */
    MATMUL_BIAS_INF,      /* changes the last column */
    MATMUL_OPERAND_NAN,   /* in its first element; changes that of C */
    MATMUL_BEYOND,        /* NaN wherever A and B lie beyond the actual batch and m */
    MATMUL_C_GRADIENT_INF /* backward: in the first element of the gradient of C */
} matmul_inject;

/* Of job.input; the last one is backward's. */
enum {
    MATMUL_A,
    MATMUL_B,
    MATMUL_BIAS,
    MATMUL_SCALE,
    MATMUL_OPERAND,
    MATMUL_INPUTS,
    MATMUL_C_GRADIENT = MATMUL_INPUTS
};

typedef enum matmul_operand { OPERAND_NONE, OPERAND_ADD, OPERAND_MULTIPLY } matmul_operand;

typedef struct matmul_case {
    const char *rule;
    unsigned levels;
    unsigned solvers;    /* solvers to try; 0: generic, cpu, tile */
    unsigned refused_by; /* the solvers among these that must answer UNSUPPORTED */
    size_t batch;        /* 0: no batch dimension */
    size_t m, n, k;
    struct {
        clattn_dtype a, b, c, bias, operand; /* 0: float32 */
    } type;                                  /* an int8 b has scales */
    bool shared_b;                           /* B has batch 1 */
    bool flat_b;                             /* B has no batch dimension */
    array_form a, b, c;
    bool bias;
    array_form bias_form;
    bool integers; /* small whole numbers: every order of summation gives the same bits */
    bool shorter;
    size_t actual_batch, actual_m;
    matmul_inject inject;
    clattn_activation activation;
    float alpha;            /* 0: not given */
    float spread, spread_b; /* A and B are uniform in ± spread; 0: 1 */
    matmul_operand operand;
    array_form operand_form, scale_form;
    bool shared_operand; /* operand has batch 1 */
    bool flat_operand;   /* operand has no batch dimension */
    bool in_place;       /* operand is C */
    bool prepack;        /* the description says that B will be packed in advance */
    const char *tuning;  /* the solver's parameters; NULL: its own choice */
} matmul_case;

/* The description of a product of m x k by k x n, all contiguous, C of float32. */
clattn_matmul_desc matmul_contiguous(clattn_dtype operands, size_t m, size_t n, size_t k);

/* Whether the library was built with CLBlast; the call compiles nothing. */
bool matmul_has_clblast(void);

/* Whether emulated AMX may be tested: some compilers take a minute for it. */
bool matmul_may_emulate_amx(void);

/* ---- what both directions share ---- */

/* Makes an array of (batch, rows, columns) or, without a batch, (rows, columns). */
test_array matmul_matrix(test_job *job, array_role role, clattn_dtype type, size_t batch, size_t rows, size_t columns,
                         array_form form);

/* The batch dimension of an array; 0: none. */
size_t matmul_batch_of_operand(const matmul_case *test);
size_t matmul_batch_of_b(const matmul_case *test);

/* The sizes that count at enqueue; a product without a batch dimension has a batch of 1. */
void matmul_actual(const matmul_case *test, size_t *batch, size_t *m);

/* Makes and fills the inputs, and tells a description and arguments of them, of the options and of the lengths. */
void matmul_inputs(test_job *job, const matmul_case *test, uint64_t salt, clattn_matmul_desc *desc,
                   clattn_matmul_args *args);

/* Changes inputs as test->inject says; false: it says nothing. */
bool matmul_inject_into(test_job *job, const matmul_case *test);

/* ---- forward ---- */

bool matmul_job(test_job *job, const matmul_case *test, const char *solver, uint64_t salt);
void matmul_add(const matmul_case *cases, size_t count);

#endif
