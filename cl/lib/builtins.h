/* Declares the built-in functions that the library's kernels call, and no others.
 *
 * PoCL reads its header opencl-c.h, 895 KB, twice in each build, which takes longer than a small kernel.  The library
 * therefore defines that header's guard, _OPENCL_H_, puts this file in front of a kernel's text, and builds again without
 * both if the compiler finds a mistake: a missing function costs time alone.  On other drivers nothing reads this file. */
#ifndef CLATTN_CL_LIB_BUILTINS_H
#define CLATTN_CL_LIB_BUILTINS_H

#define EFFECT __attribute__((overloadable))
#define READS __attribute__((overloadable, pure))
#define VALUE __attribute__((overloadable, const))
#define TOGETHER __attribute__((overloadable, convergent))

VALUE size_t get_global_id(uint);
VALUE size_t get_group_id(uint);
VALUE size_t get_local_id(uint);
VALUE size_t get_local_size(uint);
TOGETHER void barrier(cl_mem_fence_flags);
EFFECT void mem_fence(cl_mem_fence_flags);
EFFECT int atomic_or(volatile local int *, int);
EFFECT uint atomic_or(volatile local uint *, uint);

#if SUB_GROUPS == 1
VALUE uint get_sub_group_id(void);
VALUE uint get_sub_group_local_id(void);
TOGETHER float intel_sub_group_shuffle_xor(float, uint);
#endif

VALUE int mul24(int, int);
VALUE uint mul_hi(uint, uint);
VALUE ulong mul_hi(ulong, ulong);
VALUE uint upsample(ushort, ushort);
VALUE int convert_int_rte(float);

/* Functions of numbers of type T, whose comparisons have the type I. */
#define OF_FLOATS(T, I) \
    VALUE T copysign(T, T); \
    VALUE T cos(T); \
    VALUE T exp(T); \
    VALUE T exp2(T); \
    VALUE T fabs(T); \
    VALUE T fma(T, T, T); \
    VALUE T fmax(T, T); \
    VALUE T fmin(T, T); \
    VALUE T log(T); \
    VALUE T rint(T); \
    VALUE T sin(T); \
    VALUE T sqrt(T); \
    VALUE T tanh(T); \
    VALUE I isnan(T);
#define OF_INTEGERS(T) \
    VALUE T clamp(T, T, T); \
    VALUE T max(T, T); \
    VALUE T min(T, T);
#define OF_SELECTIONS(T, I, U) \
    VALUE T select(T, T, I); \
    VALUE T select(T, T, U);

/* Conversions from vectors of n elements of type FROM. */
#define CONVERSIONS_FROM(FROM, n) \
    VALUE uchar##n convert_uchar##n(FROM##n); \
    VALUE char##n convert_char##n(FROM##n); \
    VALUE ushort##n convert_ushort##n(FROM##n); \
    VALUE short##n convert_short##n(FROM##n); \
    VALUE uint##n convert_uint##n(FROM##n); \
    VALUE int##n convert_int##n(FROM##n); \
    VALUE ulong##n convert_ulong##n(FROM##n); \
    VALUE long##n convert_long##n(FROM##n); \
    VALUE float##n convert_float##n(FROM##n);

#define LOAD_AND_STORE_IN(SPACE, T, n) \
    READS T##n vload##n(size_t, const SPACE T *); \
    EFFECT void vstore##n(T##n, size_t, SPACE T *);
#define LOAD_AND_STORE(T, n) \
    LOAD_AND_STORE_IN(global, T, n) \
    LOAD_AND_STORE_IN(local, T, n) \
    LOAD_AND_STORE_IN(private, T, n) \
    READS T##n vload##n(size_t, const constant T *);
#define LOAD_AND_STORE_HALF_IN(SPACE, n) \
    READS float##n vload_half##n(size_t, const SPACE half *); \
    EFFECT void vstore_half##n##_rte(float##n, size_t, SPACE half *);
#define LOAD_AND_STORE_HALF(n) \
    LOAD_AND_STORE_HALF_IN(global, n) \
    LOAD_AND_STORE_HALF_IN(local, n) \
    LOAD_AND_STORE_HALF_IN(private, n)

#define OF_VECTORS(n) \
    OF_FLOATS(float##n, int##n) \
    OF_INTEGERS(int##n) \
    OF_INTEGERS(uint##n) \
    OF_SELECTIONS(float##n, int##n, uint##n) \
    OF_SELECTIONS(int##n, int##n, uint##n) \
    OF_SELECTIONS(uint##n, int##n, uint##n) \
    VALUE int all(int##n); \
    VALUE int any(int##n); \
    VALUE int any(char##n); \
    CONVERSIONS_FROM(uchar, n) \
    CONVERSIONS_FROM(char, n) \
    CONVERSIONS_FROM(ushort, n) \
    CONVERSIONS_FROM(short, n) \
    CONVERSIONS_FROM(uint, n) \
    CONVERSIONS_FROM(int, n) \
    CONVERSIONS_FROM(ulong, n) \
    CONVERSIONS_FROM(long, n) \
    CONVERSIONS_FROM(float, n) \
    LOAD_AND_STORE(uchar, n) \
    LOAD_AND_STORE(char, n) \
    LOAD_AND_STORE(ushort, n) \
    LOAD_AND_STORE(uint, n) \
    LOAD_AND_STORE(int, n) \
    LOAD_AND_STORE(ulong, n) \
    LOAD_AND_STORE(float, n) \
    LOAD_AND_STORE_HALF(n)

OF_FLOATS(float, int)
OF_INTEGERS(int)
OF_INTEGERS(uint)
OF_INTEGERS(long)
OF_INTEGERS(ulong)
OF_SELECTIONS(float, int, uint)
OF_SELECTIONS(int, int, uint)
LOAD_AND_STORE_HALF()
OF_VECTORS(2)
OF_VECTORS(4)
OF_VECTORS(8)
OF_VECTORS(16)
#ifdef cl_khr_fp64
#define OF_DOUBLES(n) \
    OF_FLOATS(double##n, long##n) \
    OF_SELECTIONS(double##n, long##n, ulong##n) \
    LOAD_AND_STORE(double, n)
OF_FLOATS(double, int)
OF_DOUBLES(2)
OF_DOUBLES(4)
OF_DOUBLES(8)
#undef OF_DOUBLES
#endif

#ifdef __IMAGE_SUPPORT__
READS float4 read_imagef(read_only image2d_t, sampler_t, int2);
EFFECT void write_imagef(write_only image2d_t, int2, float4);
#endif

#undef EFFECT
#undef READS
#undef VALUE
#undef TOGETHER
#undef OF_FLOATS
#undef OF_INTEGERS
#undef OF_SELECTIONS
#undef OF_VECTORS
#undef CONVERSIONS_FROM
#undef LOAD_AND_STORE
#undef LOAD_AND_STORE_IN
#undef LOAD_AND_STORE_HALF
#undef LOAD_AND_STORE_HALF_IN

#endif
