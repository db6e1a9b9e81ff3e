/* Functions of scores and their derivatives, each in OpenCL C and in C, for tests of attention's backward direction. */
#ifndef TESTS_ATTENTION_BACKWARD_MODS_H
#define TESTS_ATTENTION_BACKWARD_MODS_H

#include "support/attention/case.h"

/* The heads of the functions. */
#define MOD_PARAMETERS "(float score, int batch, int head, int query, int key, user_data user)\n"
#define SCORE "float score_mod" MOD_PARAMETERS
#define GRAD "float score_mod_grad" MOD_PARAMETERS
#define DROP "int mask_mod(int batch, int head, int query, int key, user_data user)\n"

extern const attention_mod backward_bent;  /* by tanh, with a mask_mod */
extern const attention_mod backward_pairs; /* by head, key and the user's buffers */
extern const attention_mod backward_cut;   /* -infinity at some pairs */
extern const attention_mod backward_steep; /* infinite derivatives, and some that are NaN */

#endif
