/* What the processor under this process can do. */
#include <string.h>

#include "base/os.h"

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>

/* Bits of the instruction CPUID (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A) and of XGETBV. */
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF7_EBX_AVX512F (1u << 16)
#define LEAF7_EBX_AVX512VL (1u << 31)
#define LEAF7_1_EAX_AVX512_BF16 (1u << 5)
#define XCR0_AVX512 0xe6u /* the states of SSE, AVX and AVX-512 */

static bool is_by_amd(void)
{
    unsigned eax, name[3] = {0};
    return __get_cpuid(0, &eax, &name[0], &name[2], &name[1]) && !memcmp(name, "AuthenticAMD", sizeof name);
}

bool os_processor_has_fast_bf16(void)
{
    unsigned eax, ebx, ecx, edx, enabled, high;
    if (!is_by_amd() || !__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & LEAF1_ECX_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    (void)high;
    if ((enabled & XCR0_AVX512) != XCR0_AVX512 || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1 ||
        !(ebx & LEAF7_EBX_AVX512F) || !(ebx & LEAF7_EBX_AVX512VL))
        return false;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & LEAF7_1_EAX_AVX512_BF16);
}
#else
bool os_processor_has_fast_bf16(void)
{
    return false;
}
#endif
