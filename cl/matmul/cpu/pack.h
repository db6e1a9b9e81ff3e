/* What matmul/cpu/pack.cl and the kernels that multiply its panels share.
 *
 *   PACK_DEPTH   steps that a work-item copies   multiples of 16
 *   PANEL        lanes of a panel */
#ifndef CLATTN_CL_MATMUL_CPU_PACK_H
#define CLATTN_CL_MATMUL_CPU_PACK_H

#include "matmul/cpu/operands.h"
#include "matmul/cpu/product.h"

#ifndef PACK_DEPTH
#define PACK_DEPTH 256
#endif
#define PANEL (LANES * LANE_VECTORS)

#if LANE_VECTORS < 1 || PACK_DEPTH < 1
#error "LANE_VECTORS and PACK_DEPTH must be at least 1"
#endif

#endif
