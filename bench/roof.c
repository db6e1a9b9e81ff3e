/* See roof.h.  The vector width is chosen at run time, so that one binary, built for the baseline
 * processor, measures the roof of the machine that it runs on. */
#define _POSIX_C_SOURCE 200809L
#include "roof.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define ROOF_X86 1
#include <immintrin.h>
#else
#define ROOF_X86 0
#endif

#define WINDOWS 10
#define BUFFER_BYTES ((size_t)64 << 20)
#define BLOCK_BYTES ((size_t)1 << 20) /* between two looks at the clock */
#define FMA_ROUNDS 20000              /* likewise; about 0.1 ms */

/* One thread's work: does one step and returns the operations or bytes in it. */
typedef struct worker worker;
typedef double (*step_function)(worker *);

/* Holds the threads until all of them run, or sends them home when one could not be started. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { GATE_SHUT, GATE_OPEN, GATE_HOME } state;
} gate;

struct worker {
    step_function step;
    gate *start;
    double window; /* seconds */
    double best;   /* the result: operations or bytes a second */
    unsigned char *from, *to;
    size_t position;
    volatile uint64_t sink; /* keeps the compiler from dropping the work */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Twelve sums cover a latency of up to 6 cycles at two instructions a cycle, and with the two factors
 * they fit in the sixteen registers of AVX2.  The empty asm makes each sum opaque once a round, so that no
 * compiler folds rounds together; it emits nothing. */
#define EACH_SUM(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define SUMS 12

#if ROOF_X86
__attribute__((target("avx512f"))) static double fma_avx512(worker *w)
{
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
#define DECLARE(i) __m512 s##i = _mm512_set1_ps(1.0f + (float)i);
#define STEP(i) s##i = _mm512_fmadd_ps(s##i, x, y);
#define HIDE(i) __asm__ volatile("" : "+v"(s##i));
#define TOTAL(i) y = _mm512_add_ps(y, s##i);
    EACH_SUM(DECLARE)
    for (int round = 0; round < FMA_ROUNDS; round++) {
        EACH_SUM(STEP)
        EACH_SUM(HIDE)
        EACH_SUM(STEP)
    }
    EACH_SUM(TOTAL)
#undef DECLARE
#undef STEP
#undef HIDE
#undef TOTAL
    w->sink += (uint64_t)_mm_cvtss_f32(_mm512_castps512_ps128(y));
    return 2.0 * 2.0 * SUMS * 16.0 * FMA_ROUNDS;
}

__attribute__((target("avx2,fma"))) static double fma_avx2(worker *w)
{
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
#define DECLARE(i) __m256 s##i = _mm256_set1_ps(1.0f + (float)i);
#define STEP(i) s##i = _mm256_fmadd_ps(s##i, x, y);
#define HIDE(i) __asm__ volatile("" : "+x"(s##i));
#define TOTAL(i) y = _mm256_add_ps(y, s##i);
    EACH_SUM(DECLARE)
    for (int round = 0; round < FMA_ROUNDS; round++) {
        EACH_SUM(STEP)
        EACH_SUM(HIDE)
        EACH_SUM(STEP)
    }
    EACH_SUM(TOTAL)
#undef DECLARE
#undef STEP
#undef HIDE
#undef TOTAL
    w->sink += (uint64_t)_mm_cvtss_f32(_mm256_castps256_ps128(y));
    return 2.0 * 2.0 * SUMS * 8.0 * FMA_ROUNDS;
}

__attribute__((target("avx2"))) static double read_avx2(worker *w)
{
    const __m256i *p = (const __m256i *)(w->from + w->position);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;

    for (size_t i = 0; i < BLOCK_BYTES / sizeof *p; i += 4) {
        a = _mm256_xor_si256(a, _mm256_load_si256(p + i));
        b = _mm256_xor_si256(b, _mm256_load_si256(p + i + 1));
        c = _mm256_xor_si256(c, _mm256_load_si256(p + i + 2));
        d = _mm256_xor_si256(d, _mm256_load_si256(p + i + 3));
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    w->sink += (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(a));
    w->position = (w->position + BLOCK_BYTES) % BUFFER_BYTES;
    return (double)BLOCK_BYTES;
}
#endif

/* Separate arrays and a plain expression: any compiler vectorises it as wide as its baseline allows. */
static double fma_portable(worker *w)
{
    enum { width = 32 };
    float s[width];

    for (int i = 0; i < width; i++)
        s[i] = 1.0f + (float)i;
    for (int round = 0; round < FMA_ROUNDS; round++)
        for (int i = 0; i < width; i++)
            s[i] = s[i] * 0.999f + 0.001f;
    for (int i = 0; i < width; i++)
        w->sink += (uint64_t)s[i];
    return 2.0 * width * FMA_ROUNDS;
}

static double read_portable(worker *w)
{
    const uint64_t *p = (const uint64_t *)(w->from + w->position);
    uint64_t a = 0, b = 0, c = 0, d = 0;

    for (size_t i = 0; i < BLOCK_BYTES / sizeof *p; i += 4) {
        a ^= p[i];
        b ^= p[i + 1];
        c ^= p[i + 2];
        d ^= p[i + 3];
    }
    w->sink += a ^ b ^ c ^ d;
    w->position = (w->position + BLOCK_BYTES) % BUFFER_BYTES;
    return (double)BLOCK_BYTES;
}

/* Sixteen blocks at once: the C library's memcpy changes to stores that bypass the caches for long copies
 * only, and a copy that does not pays for reading what it overwrites. */
static double copy(worker *w)
{
    memcpy(w->to + w->position, w->from + w->position, 16 * BLOCK_BYTES);
    w->sink += w->to[w->position];
    w->position = (w->position + 16 * BLOCK_BYTES) % BUFFER_BYTES;
    return 2.0 * 16.0 * (double)BLOCK_BYTES;
}

static void *work(void *argument)
{
    worker *w = argument;
    int windows;

    pthread_mutex_lock(&w->start->lock);
    while (w->start->state == GATE_SHUT)
        pthread_cond_wait(&w->start->changed, &w->start->lock);
    windows = w->start->state == GATE_OPEN ? WINDOWS : 0;
    pthread_mutex_unlock(&w->start->lock);

    for (int i = 0; i < windows; i++) {
        double begin = now(), end, done = 0;

        do {
            done += w->step(w);
            end = now();
        } while (end - begin < w->window);
        if (done / (end - begin) > w->best)
            w->best = done / (end - begin);
    }
    return NULL;
}

static unsigned char *buffer(void)
{
    unsigned char *p = aligned_alloc(4096, BUFFER_BYTES);

    if (p)
        memset(p, 1, BUFFER_BYTES); /* untouched pages all map to one page of zeros */
    return p;
}

static double measure(int threads, double seconds, step_function step, int buffers)
{
    gate start = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, GATE_SHUT};
    size_t count = threads > 1 ? (size_t)threads : 1, ready = 0, started = 0;
    worker *workers = calloc(count, sizeof *workers);
    pthread_t *handles = calloc(count, sizeof *handles);
    double total = 0;

    for (; workers && handles && ready < count; ready++) {
        worker *w = &workers[ready];

        w->step = step;
        w->start = &start;
        w->window = seconds / WINDOWS;
        if ((buffers > 0 && !(w->from = buffer())) || (buffers > 1 && !(w->to = buffer())))
            break;
    }
    if (ready == count)
        while (started < count && pthread_create(&handles[started], NULL, work, &workers[started]) == 0)
            started++;

    pthread_mutex_lock(&start.lock);
    start.state = started == count ? GATE_OPEN : GATE_HOME;
    pthread_cond_broadcast(&start.changed);
    pthread_mutex_unlock(&start.lock);

    for (size_t i = 0; i < started; i++) {
        pthread_join(handles[i], NULL);
        total += workers[i].best;
    }
    for (size_t i = 0; workers && i < count; i++) {
        free(workers[i].from);
        free(workers[i].to);
    }
    free(workers);
    free(handles);
    return total * 1e-9;
}

/* The widest instruction set at hand, as a step and its name. */
static step_function fma_step(const char **name)
{
#if ROOF_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        *name = "avx512";
        return fma_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *name = "avx2+fma";
        return fma_avx2;
    }
#endif
    *name = "portable";
    return fma_portable;
}

double roof_fma_gflops(int threads, double seconds)
{
    const char *name;

    return measure(threads, seconds, fma_step(&name), 0);
}

double roof_read_gbps(int threads, double seconds)
{
#if ROOF_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        return measure(threads, seconds, read_avx2, 1);
#endif
    return measure(threads, seconds, read_portable, 1);
}

double roof_copy_gbps(int threads, double seconds)
{
    return measure(threads, seconds, copy, 2);
}

const char *roof_fma_name(void)
{
    const char *name;

    fma_step(&name);
    return name;
}
