/* Declares the user's score and mask functions, and the derivative of the former.
 *
 *   SCORE_MOD        1: float score_mod(float score, int batch, int head, int query, int key, user_data user)  (0)
 *   MASK_MOD         1: int mask_mod(int batch, int head, int query, int key, user_data user)               (0)
 *   SCORE_MOD_GRAD   1: float score_mod_grad, with score_mod's parameters: its derivative by `score`        (0)
 *   USER0 ... USER3  element type of user.buffer0 ... user.buffer3, an OpenCL C type; undefined: no such buffer
 *   SNIPPETS         in the program that only checks the snippets: how many of the three may be there; elsewhere undefined
 *
 * "score_mod", "mask_mod" and "score_mod_grad" are no files but the program's snippets.  Their #include declares the function;
 * the texts come last in the program, in this order, where none of the library's macros is defined any more, so that no text
 * sees the library's, nor the library a text's. */
#ifndef CLATTN_CL_ATTENTION_USER_H
#define CLATTN_CL_ATTENTION_USER_H

#ifndef SCORE_MOD
#define SCORE_MOD 0
#endif
#ifndef MASK_MOD
#define MASK_MOD 0
#endif
#ifndef SCORE_MOD_GRAD
#define SCORE_MOD_GRAD 0
#endif

typedef struct user_data {
#ifdef USER0
    const global USER0 *buffer0;
#endif
#ifdef USER1
    const global USER1 *buffer1;
#endif
#ifdef USER2
    const global USER2 *buffer2;
#endif
#ifdef USER3
    const global USER3 *buffer3;
#endif
    float scalar0, scalar1, scalar2, scalar3;
    long position;                /* the key position of the item's query 0 */
    int query_length, key_length; /* the item's own */
} user_data;

#if SCORE_MOD
#include "score_mod"
#endif
#if MASK_MOD
#include "mask_mod"
#endif
#if SCORE_MOD_GRAD
#include "score_mod_grad"
#endif

#ifdef SNIPPETS
/* Some compilers and linkers find a mistake only in what a kernel calls. */
kernel void nothing(global float *to)
{
    user_data user = {0};
#if SCORE_MOD
    to[0] = score_mod(to[0], 0, 0, 0, 0, user);
#endif
#if MASK_MOD && SNIPPETS > 1
    to[1] = mask_mod(0, 0, 0, 0, user);
#endif
#if SCORE_MOD_GRAD && SNIPPETS > 2
    to[2] = score_mod_grad(to[2], 0, 0, 0, 0, user);
#endif
}
#endif

#endif
