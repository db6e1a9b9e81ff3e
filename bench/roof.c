/* See roof.h.  The vector width is chosen at run time, so that one binary, built for the baseline
 * processor, measures the roof of the machine that it runs on. */
#define _GNU_SOURCE /* syscall */
#include "roof.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define ROOF_X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define ROOF_X86 0
#endif

#define WINDOWS 10
#define STAMPS_PER_WINDOW 16
#define STAMPS (WINDOWS * STAMPS_PER_WINDOW + 2) /* the start, and one after the end */
#define BUFFER_BYTES ((size_t)128 << 20)
#define BLOCK_BYTES ((size_t)1 << 20) /* between two looks at the clock */
#define FMA_ROUNDS 20000              /* between two looks at the clock; about 0.1 ms */

/* Does one step of a thread's work, and returns the operations or bytes in it. */
typedef struct worker worker;
typedef double (*step_function)(worker *);

/* Holds the threads until all of them run. If one could not be started, the others end without work. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { GATE_SHUT, GATE_OPEN, GATE_HOME } state;
} gate;

/* How much a thread had done at a time. */
typedef struct stamp {
    double time, done;
} stamp;

struct worker {
    step_function step;
    gate *start;
    double window; /* seconds */
    stamp stamps[STAMPS];
    size_t stamp_count; /* 0: the thread ended without work */
    unsigned char *from, *to;
    size_t position;
    size_t streams, piece;  /* read_streams: places at once, and bytes of each in turn; both powers of two */
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

/* By vdpbf16ps each of the sixteen float32 lanes takes two products of bfloat16. There are sixteen sums: twelve would cover
 * the instruction's six cycles on paper, but Zen 5 then reaches 0.93 of the rate that it has with more. */
#define EACH_PAIR_SUM(X) EACH_SUM(X) X(12) X(13) X(14) X(15)
#define PAIR_SUMS 16
__attribute__((target("avx512f"))) static double bf16_avx512(worker *w)
{
    __m512i x = _mm512_set1_epi16(0x3f00), y = _mm512_set1_epi16(0x3e80); /* a half and a quarter */
    __m512 all = _mm512_setzero_ps();
#define DECLARE(i) __m512 s##i = _mm512_set1_ps((float)i);
#define STEP(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(s##i) : "v"(x), "v"(y));
#define TOTAL(i) all = _mm512_add_ps(all, s##i);
    EACH_PAIR_SUM(DECLARE)
    for (int round = 0; round < FMA_ROUNDS; round++) {
        EACH_PAIR_SUM(STEP)
        EACH_PAIR_SUM(STEP)
    }
    EACH_PAIR_SUM(TOTAL)
#undef DECLARE
#undef STEP
#undef TOTAL
    w->sink += (uint64_t)_mm_cvtss_f32(_mm512_castps512_ps128(all));
    return 2.0 * 2.0 * PAIR_SUMS * 32.0 * FMA_ROUNDS;
}

/* CPUID tells of AVX512-BF16 in leaf 7, subleaf 1, EAX bit 5. If there is avx512f, the system keeps the registers. */
static int has_avx512_bf16(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;

    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

#if defined __linux__ && defined __x86_64__
/* By AMX's tdpbf16ps four tiles of 16 x 16 float32 sums, each of 32 products, are made from two tiles of rows and two of
 * columns. All elements are 0. */
static double bf16_amx(worker *w)
{
    unsigned char config[64] = {1}; /* palette 1; 16 bytes on the tiles' bytes a row, 48 on their rows */

    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    for (int round = 0; round < FMA_ROUNDS / 10; round++)
        __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                         "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3"
                         :
                         :
                         : "memory");
    __asm__ volatile("tilerelease" : : : "memory");
    w->sink += 1;
    return 2.0 * 4.0 * 16.0 * 16.0 * 32.0 * (FMA_ROUNDS / 10);
}

/* CPUID tells of AMX in leaf 7, EDX bits 22 (AMX-BF16) and 24 (AMX-TILE). Linux gives the tiles' registers only by
 * request. */
static int permit_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILE_DATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & d >> 24 & 1) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}
#else
static double bf16_amx(worker *w)
{
    (void)w;
    return 0;
}

static int permit_amx(void)
{
    return 0;
}
#endif

/* The exclusive or of `bytes` from `p` on. */
__attribute__((target("avx2"))) static uint64_t fold_avx2(const unsigned char *from, size_t bytes)
{
    const __m256i *p = (const __m256i *)from;
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;

    for (size_t i = 0; i < bytes / sizeof *p; i += 4) {
        a = _mm256_xor_si256(a, _mm256_load_si256(p + i));
        b = _mm256_xor_si256(b, _mm256_load_si256(p + i + 1));
        c = _mm256_xor_si256(c, _mm256_load_si256(p + i + 2));
        d = _mm256_xor_si256(d, _mm256_load_si256(p + i + 3));
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(a));
}
#endif

/* Arrays are separate and the expression is plain, so any compiler vectorises it as wide as its baseline allows. */
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

static uint64_t fold_portable(const unsigned char *from, size_t bytes)
{
    const uint64_t *p = (const uint64_t *)from;
    uint64_t a = 0, b = 0, c = 0, d = 0;

    for (size_t i = 0; i < bytes / sizeof *p; i += 4) {
        a ^= p[i];
        b ^= p[i + 1];
        c ^= p[i + 2];
        d ^= p[i + 3];
    }
    return a ^ b ^ c ^ d;
}

/* Reads a block: a piece from each stream in turn. The streams are equal parts of the buffer. */
static double read_streams(worker *w)
{
    const size_t part = BUFFER_BYTES / w->streams, step = BLOCK_BYTES / w->streams;
    uint64_t folded = 0;

    for (size_t i = 0; i < step; i += w->piece)
        for (size_t s = 0; s < w->streams; s++) {
            const unsigned char *from = w->from + s * part + w->position + i;
#if ROOF_X86
            folded ^= __builtin_cpu_supports("avx2") ? fold_avx2(from, w->piece) : fold_portable(from, w->piece);
#else
            folded ^= fold_portable(from, w->piece);
#endif
        }
    w->sink += folded;
    w->position = (w->position + step) % part;
    return (double)BLOCK_BYTES;
}

/* Copies sixteen blocks at once, because the C library's memcpy bypasses the caches only for long copies. A copy
 * through the caches also reads what it overwrites. */
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
    int runs;

    pthread_mutex_lock(&w->start->lock);
    while (w->start->state == GATE_SHUT)
        pthread_cond_wait(&w->start->changed, &w->start->lock);
    runs = w->start->state == GATE_OPEN;
    pthread_mutex_unlock(&w->start->lock);
    if (!runs)
        return NULL;

    stamp latest = {now(), 0};
    const double begin = latest.time, every = w->window / STAMPS_PER_WINDOW;
    w->stamps[w->stamp_count++] = latest;
    while (w->stamp_count < STAMPS && latest.time - begin < WINDOWS * w->window) {
        latest.done += w->step(w);
        latest.time = now();
        if (latest.time - w->stamps[w->stamp_count - 1].time >= every)
            w->stamps[w->stamp_count++] = latest;
    }
    return NULL;
}

/* What a worker had done by a time between its first stamp and its last. */
static double done_by(const worker *w, double time)
{
    size_t low = 0, high = w->stamp_count - 1;

    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        *(w->stamps[middle].time <= time ? &low : &high) = middle;
    }
    const stamp *a = &w->stamps[low], *b = &w->stamps[high];
    return a->done + (b->done - a->done) * (time - a->time) / (b->time - a->time);
}

/* The highest rate of all workers together, a second, in a window during which all of them worked; 0 if there is none. */
static double best_window(const worker *workers, size_t count, double window)
{
    double from = 0, to = 1e300, best = 0;

    for (size_t i = 0; i < count; i++) {
        const worker *w = &workers[i];
        if (w->stamp_count < 2)
            return 0;
        from = w->stamps[0].time > from ? w->stamps[0].time : from;
        to = w->stamps[w->stamp_count - 1].time < to ? w->stamps[w->stamp_count - 1].time : to;
    }
    window = window < to - from ? window : to - from;
    for (int n = 0; window > 0 && from + n * (window / 8) + window <= to; n++) {
        const double begin = from + n * (window / 8);
        double done = 0;
        for (size_t i = 0; i < count; i++)
            done += done_by(&workers[i], begin + window) - done_by(&workers[i], begin);
        best = done / window > best ? done / window : best;
    }
    return best;
}

static unsigned char *buffer(void)
{
    unsigned char *p = aligned_alloc(4096, BUFFER_BYTES);

    if (p)
        memset(p, 1, BUFFER_BYTES); /* untouched pages all map to one page of zeros */
    return p;
}

/* Whether rates are taken from each thread's own best window, or from the best window of all threads together. Each core
 * has its own arithmetic, but they share memory, where one thread is fastest while another waits. */
enum together { EACH_ALONE, ALL_AT_ONCE };

typedef struct probe {
    step_function step;
    int buffers;
    enum together together;
    size_t streams, piece;
} probe;

static double measure(int threads, double seconds, const probe *what)
{
    gate start = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, GATE_SHUT};
    size_t count = threads > 1 ? (size_t)threads : 1, ready = 0, started = 0;
    worker *workers = calloc(count, sizeof *workers);
    pthread_t *handles = calloc(count, sizeof *handles);
    double total = 0;

    for (; workers && handles && ready < count; ready++) {
        worker *w = &workers[ready];

        w->step = what->step;
        w->streams = what->streams;
        w->piece = what->piece;
        w->start = &start;
        w->window = seconds / WINDOWS;
        if ((what->buffers > 0 && !(w->from = buffer())) || (what->buffers > 1 && !(w->to = buffer())))
            break;
    }
    if (ready == count)
        while (started < count && pthread_create(&handles[started], NULL, work, &workers[started]) == 0)
            started++;

    pthread_mutex_lock(&start.lock);
    start.state = started == count ? GATE_OPEN : GATE_HOME;
    pthread_cond_broadcast(&start.changed);
    pthread_mutex_unlock(&start.lock);

    for (size_t i = 0; i < started; i++)
        pthread_join(handles[i], NULL);
    if (started == count && what->together == ALL_AT_ONCE)
        total = best_window(workers, count, seconds / WINDOWS);
    for (size_t i = 0; i < started && what->together == EACH_ALONE; i++)
        total += best_window(&workers[i], 1, seconds / WINDOWS);
    for (size_t i = 0; workers && i < count; i++) {
        free(workers[i].from);
        free(workers[i].to);
    }
    free(workers);
    free(handles);
    return total * 1e-9;
}

/* The step for the widest instruction set that the processor has, and that set's name. */
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

    return measure(threads, seconds, &(probe){.step = fma_step(&name), .together = EACH_ALONE});
}

double roof_bf16_gflops(int threads, double seconds)
{
#if ROOF_X86
    if (permit_amx())
        return measure(threads, seconds, &(probe){.step = bf16_amx, .together = EACH_ALONE});
    if (has_avx512_bf16())
        return measure(threads, seconds, &(probe){.step = bf16_avx512, .together = EACH_ALONE});
#endif
    (void)threads;
    (void)seconds;
    return 0;
}

double roof_streams_gbps(int threads, double seconds, size_t streams, size_t piece)
{
#if ROOF_X86
    __builtin_cpu_init();
#endif
    return measure(
        threads, seconds,
        &(probe){.step = read_streams, .buffers = 1, .together = ALL_AT_ONCE, .streams = streams, .piece = piece});
}

double roof_read_gbps(int threads, double seconds)
{
    return roof_streams_gbps(threads, seconds, 1, BLOCK_BYTES);
}

double roof_copy_gbps(int threads, double seconds)
{
    return measure(threads, seconds, &(probe){.step = copy, .buffers = 2, .together = ALL_AT_ONCE});
}

const char *roof_fma_name(void)
{
    const char *name;

    fma_step(&name);
    return name;
}
