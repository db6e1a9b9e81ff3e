/* What this machine's processor can do at best, measured: the figures that the benchmarks divide by.
 *
 * Each function blocks for about `seconds`, runs on `threads` threads of its own (at least 1; a caller
 * who wants them on certain processors sets the process's affinity first) and returns the sum over the
 * threads of each one's best window, a tenth of that time: the best, because kernels are timed
 * by their best run too, so that a busy neighbour does not flatter their share of the roof.
 * 0 means that memory or a thread was not to be had.  Thread-safety: any thread, one call at a time. */
#ifndef CLATTN_BENCH_ROOF_H
#define CLATTN_BENCH_ROOF_H

/* Float32 fused multiply-adds on registers, two operations each, in 10^9 operations a second. */
double roof_fma_gflops(int threads, double seconds);

/* Memory read in order, 64 MiB a thread, in 10^9 bytes a second. */
double roof_read_gbps(int threads, double seconds);

/* Memory copied, 64 MiB a thread to as much again, in 10^9 bytes a second, read and written both counted. */
double roof_copy_gbps(int threads, double seconds);

/* The instruction set that roof_fma_gflops runs on here: "avx512", "avx2+fma" or "portable". */
const char *roof_fma_name(void);

#endif
