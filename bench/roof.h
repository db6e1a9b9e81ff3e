/* What this machine's processor can do at best, measured: the figures that the benchmarks divide by.
 *
 * Each function blocks for about `seconds` and runs on `threads` threads of its own (at least 1; a caller
 * who wants them on certain processors sets the process's affinity first).  The result is the rate of the best
 * window, a tenth of that time. It is the best because kernels are timed by their best run too, so that a busy
 * neighbour does not flatter their share of the roof.  For arithmetic, the best windows of all threads are added up.
 * For memory, one window counts in which all threads work: they share memory, and one reads fastest while another
 * waits, so a sum of their best windows is a rate that they never have.
 * 0 means that memory could not be allocated or a thread not be started.  Thread-safety: any thread, one call at a time. */
#ifndef CLATTN_BENCH_ROOF_H
#define CLATTN_BENCH_ROOF_H

#include <stddef.h>

/* Float32 fused multiply-adds on registers, two operations each, in 10^9 operations a second. */
double roof_fma_gflops(int threads, double seconds);

/* Products of bfloat16 summed in float32 on registers, by AMX's tiles (Linux) or else by vdpbf16ps, in 10^9 operations a
 * second; 0 if the processor has neither. */
double roof_bf16_gflops(int threads, double seconds);

/* Memory read in order, 128 MiB a thread, in 10^9 bytes a second. */
double roof_read_gbps(int threads, double seconds);

/* As much memory, of which each thread reads `streams` equal parts (a power of two, at most 64) at once: `piece`
 * bytes (a power of two, 128 to 2^20 / streams) of each in turn, as a decoding kernel reads keys and values. */
double roof_streams_gbps(int threads, double seconds, size_t streams, size_t piece);

/* Memory copied, 128 MiB a thread to as much again, in 10^9 bytes a second, read and written both counted. */
double roof_copy_gbps(int threads, double seconds);

/* The instruction set that roof_fma_gflops runs on here: "avx512", "avx2+fma" or "portable". */
const char *roof_fma_name(void);

#endif
