/* FMA(a, b, c): a * b + c, fused if the device fuses.
 *
 * FUSED 0 or 1 (default 1): whether the device reports CL_FP_FMA; the host gives -DFUSED=0 if it does
 * not.  Then fma() is emulated with integers: on rusticl's llvmpipe (Mesa 22.3) it made
 * attention_tile take four times as long to compile (6.6 s against 1.5 s); FP_FAST_FMAF tells nothing
 * (PoCL 3.1 leaves it undefined on processors that fuse).  Code that relies on the product not being
 * rounded, such as fma(s, c, -m * c) for s near m, must look at FUSED or subtract first. */
#ifndef CLATTN_CL_LIB_FMA_H
#define CLATTN_CL_LIB_FMA_H

#ifndef FUSED
#define FUSED 1
#endif

#if FUSED
#define FMA(a, b, c) fma(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

#endif
