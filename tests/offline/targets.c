/* What the drivers of these GPUs answer to the library's queries. */
#include "offline.h"

#define GIB ((cl_ulong)1 << 30)

#define NVIDIA_EXTENSIONS \
    "cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics " \
    "cl_khr_local_int32_extended_atomics cl_khr_fp64 cl_khr_3d_image_writes cl_khr_byte_addressable_store " \
    "cl_khr_icd cl_khr_gl_sharing cl_nv_compiler_options cl_nv_device_attribute_query cl_nv_pragma_unroll " \
    "cl_nv_copy_opts cl_khr_int64_base_atomics cl_khr_int64_extended_atomics cl_khr_device_uuid " \
    "cl_khr_pci_bus_info"

#define AMD_EXTENSIONS \
    "cl_khr_fp64 cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics " \
    "cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics cl_khr_int64_base_atomics " \
    "cl_khr_int64_extended_atomics cl_khr_3d_image_writes cl_khr_byte_addressable_store cl_khr_fp16 " \
    "cl_khr_gl_sharing cl_amd_device_attribute_query cl_amd_media_ops cl_amd_media_ops2 " \
    "cl_khr_image2d_from_buffer cl_khr_subgroups cl_khr_depth_images"

#define INTEL_EXTENSIONS \
    "cl_khr_byte_addressable_store cl_khr_device_uuid cl_khr_fp16 cl_khr_global_int32_base_atomics " \
    "cl_khr_global_int32_extended_atomics cl_khr_icd cl_khr_local_int32_base_atomics " \
    "cl_khr_local_int32_extended_atomics cl_intel_command_queue_families cl_intel_subgroups " \
    "cl_intel_required_subgroup_size cl_intel_subgroups_short cl_khr_spir cl_intel_accelerator " \
    "cl_intel_driver_diagnostics cl_khr_priority_hints cl_khr_throttle_hints cl_khr_create_command_queue " \
    "cl_intel_subgroups_char cl_intel_subgroups_long cl_khr_il_program cl_khr_subgroup_extended_types " \
    "cl_khr_subgroup_non_uniform_vote cl_khr_subgroup_ballot cl_khr_subgroup_non_uniform_arithmetic " \
    "cl_khr_subgroup_shuffle cl_khr_subgroup_shuffle_relative cl_khr_subgroup_clustered_reduce " \
    "cl_intel_subgroup_matrix_multiply_accumulate cl_intel_subgroup_split_matrix_multiply_accumulate " \
    "cl_khr_subgroups"

/* What the GPUs of one vendor have in common. */
#define NVIDIA \
    .platform = "NVIDIA CUDA", .vendor = "NVIDIA Corporation", .driver = "550.90.07", .version = "OpenCL 3.0 CUDA", \
    .extensions = NVIDIA_EXTENSIONS, .global_memory = 80 * GIB, .max_allocation = 20 * GIB, .local_memory = 49152, \
    .max_work_group = 1024, .max_work_item = {1024, 1024, 64}, .warp = 32, .fp64 = true
#define AMD \
    .platform = "AMD Accelerated Parallel Processing", .vendor = "Advanced Micro Devices, Inc.", \
    .driver = "3614.0 (HSA1.1,LC)", .version = "OpenCL 2.0 ", .extensions = AMD_EXTENSIONS, .local_memory = 65536, \
    .max_work_group = 256, .max_work_item = {1024, 1024, 1024}, .fp64 = true

const offline_target targets[] = {
    {NVIDIA, .name = "sm_80", .device = "NVIDIA A100-SXM4-80GB", .compute_units = 108, .clock_mhz = 1410,
     .capability = 8},
    {NVIDIA, .name = "sm_90", .device = "NVIDIA H100 80GB HBM3", .compute_units = 132, .clock_mhz = 1980,
     .capability = 9},
    {AMD, .name = "gfx1030", .device = "gfx1030", .compute_units = 36, .clock_mhz = 2575, .global_memory = 16 * GIB,
     .max_allocation = 13 * GIB, .wavefront = 32},
    {AMD, .name = "gfx90a", .device = "gfx90a:sramecc+:xnack-", .compute_units = 104, .clock_mhz = 1700,
     .global_memory = 64 * GIB, .max_allocation = 54 * GIB, .wavefront = 64},
    {AMD, .name = "gfx1100", .device = "gfx1100", .compute_units = 48, .clock_mhz = 2482, .global_memory = 24 * GIB,
     .max_allocation = 20 * GIB, .wavefront = 32},
    {.name = "dg2",
     .platform = "Intel(R) OpenCL Graphics",
     .device = "Intel(R) Arc(TM) A770 Graphics",
     .vendor = "Intel(R) Corporation",
     .driver = "22.43.24595",
     .version = "OpenCL 3.0 NEO ",
     .extensions = INTEL_EXTENSIONS,
     .compute_units = 512,
     .clock_mhz = 2400,
     .global_memory = 15 * GIB,
     .max_allocation = 4 * GIB,
     .local_memory = 65536,
     .max_work_group = 1024,
     .max_work_item = {1024, 1024, 1024},
     .sub_groups = {8, 16, 32},
     .sub_groups_per_group = 128},
};

const size_t target_count = sizeof targets / sizeof targets[0];
