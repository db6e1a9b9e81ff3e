/* Hopper's wgmma in a program whose compiler does not know it.
 *
 * PTX for sm_90, which is what NVIDIA's OpenCL driver compiles for on a Hopper GPU, has no wgmma; that for sm_90a has.  But the
 * driver gives a program's PTX as its binary, and builds from such a binary.  So a kernel has comments in inline assembly
 * where the instructions belong, with the registers that the compiler has given the operands.  Each is a line of its own, its
 * words separated by single blanks:
 *
 *   //clattn.wgmma fence                  wgmma.fence
 *   //clattn.wgmma multiply N TYPE TRANSPOSED_A TRANSPOSED_B A B D...
 *                                         wgmma.mma_async of 64 x N x 16: N is 8, 16, ... 256, TYPE bf16 or f16, TRANSPOSED_A
 *                                         and TRANSPOSED_B 0 or 1, A and B the descriptors' registers, D... N/2 registers of
 *                                         floats, all different, to which the product is added
 *   //clattn.wgmma commit                 wgmma.commit_group
 *   //clattn.wgmma wait N                 wgmma.wait_group of 0 to 7
 *   //clattn.wgmma proxy                  fence.proxy.async of shared memory
 *
 * The text comes from the driver, or from a file that anybody may have written: whatever is not known to be right is refused.
 * What its instructions mean is not checked: the driver compiles the result, and refuses what is not PTX. */
#ifndef CLATTN_PROGRAM_PTX_SPLICE_H
#define CLATTN_PROGRAM_PTX_SPLICE_H

#include <stddef.h>

#include "base/strbuf.h"

/* Appends to *spliced the binary with target sm_90a, a PTX version of at least 8.0 and the instructions in the comments'
 * places.  Returns NULL, or a static string that says why this is impossible; *spliced is then unusable.  If memory runs out,
 * only spliced->failed says so. */
const char *ptx_splice(const void *binary, size_t bytes, struct strbuf *spliced);

/* A program whose binary is to be spliced is built with this macro defined as 1. */
#define PTX_SPLICE_OPTION "PTX_SPLICE"

#endif
