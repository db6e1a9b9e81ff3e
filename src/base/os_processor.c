/* Queries about the processor that runs this process. */
#define _GNU_SOURCE /* syscall */
#include "base/os.h"

#include <string.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>

/* Bits of the instruction CPUID (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A) and of XGETBV. */
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF7_EBX_AVX512F (1u << 16)
#define LEAF7_EBX_AVX512VL (1u << 31)
#define LEAF7_1_EAX_AVX512_BF16 (1u << 5)
#define LEAF7_EDX_AMX_BF16 (1u << 22)
#define LEAF7_EDX_AMX_TILE (1u << 24)
#define XCR0_AMX (3u << 17) /* tile configuration and data */
#define XCR0_AVX512 0xe6u   /* the states of SSE, AVX and AVX-512 */

static bool is_by_amd(void)
{
    unsigned eax, name[3] = {0};
    return __get_cpuid(0, &eax, &name[0], &name[2], &name[1]) && !memcmp(name, "AuthenticAMD", sizeof name);
}

/* Whether the system saves and restores these registers. */
static bool system_saves(unsigned states)
{
    unsigned eax, ebx, ecx, edx, enabled, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & LEAF1_ECX_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    (void)high;
    return (enabled & states) == states;
}

static bool has_avx512_bf16(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!system_saves(XCR0_AVX512) || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1 ||
        !(ebx & LEAF7_EBX_AVX512F) || !(ebx & LEAF7_EBX_AVX512VL))
        return false;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & LEAF7_1_EAX_AVX512_BF16);
}

bool os_processor_has_fast_bf16(void)
{
    return is_by_amd() && has_avx512_bf16();
}

#else
bool os_processor_has_fast_bf16(void)
{
    return false;
}
#endif

/* Linux grants the tiles' 8 KiB of state by request only (Documentation/arch/x86/xstate.rst), to all threads of the
 * process and for good; a 32-bit process has no tiles. */
#if defined __linux__ && defined __x86_64__ && defined SYS_arch_prctl
enum { ARCH_GET_XCOMP_SUPP = 0x1021, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILE_DATA = 18 };

bool os_processor_has_amx_bf16(void)
{
    unsigned eax, ebx, ecx, edx;
    uint64_t supported = 0;
    return has_avx512_bf16() && system_saves(XCR0_AMX) && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx & LEAF7_EDX_AMX_TILE) && (edx & LEAF7_EDX_AMX_BF16) &&
           syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) == 0 && (supported >> XFEATURE_TILE_DATA & 1);
}

bool os_processor_permit_amx_bf16(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}
#else
bool os_processor_has_amx_bf16(void)
{
    return false;
}

bool os_processor_permit_amx_bf16(void)
{
    return false;
}
#endif
