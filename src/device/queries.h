/* Device queries that extensions add, under names of our own: OpenCL's headers need not define them. */
#ifndef CLATTN_DEVICE_QUERIES_H
#define CLATTN_DEVICE_QUERIES_H

#define UUID_QUERY 0x106a             /* CL_DEVICE_UUID_KHR of cl_khr_device_uuid */
#define SUB_GROUP_SIZES_QUERY 0x4108  /* CL_DEVICE_SUB_GROUP_SIZES_INTEL of cl_intel_required_subgroup_size */
#define CAPABILITY_MAJOR_QUERY 0x4000 /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV of cl_nv_device_attribute_query */
#define CAPABILITY_MINOR_QUERY 0x4001 /* CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV of cl_nv_device_attribute_query */
#define WARP_QUERY 0x4003             /* CL_DEVICE_WARP_SIZE_NV of cl_nv_device_attribute_query */
#define WAVEFRONT_QUERY 0x4043        /* CL_DEVICE_WAVEFRONT_WIDTH_AMD of cl_amd_device_attribute_query */

#endif
