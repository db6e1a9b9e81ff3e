/* CLBlast's parameters are the process's, by device: what a plan sets stays when it goes, and there is no call that brings
 * CLBlast's own back.  Hence sets, each complete, of which 0 means "as they are".
 *
 * The sets are drawn at random from the spaces of CLBlast's own tuners (src/tuning/kernels of 1.5.3 and 1.6: V == 2 and
 * V == 12 of Xgemm, V == 2 of XgemmDirect), within their constraints and, so that they fit most devices, with work-groups of
 * at most 256 items and 32 KiB of local memory.  Every set of the table is right by CLBlast's constraints; which of them is
 * fast, only measuring tells.  On rusticl CLBlast 1.5.3 fails with kDatabaseError where copying kernels have one: another
 * solver serves then. */
#include "ops/matmul/clblast/parameters.h"

#include <clblast_c.h>

#include "ops/matmul/clblast/library.h"

#define MOST_NAMES 16
#define DEVICES 8

struct kernel {
    const char *parameter, *kernel; /* the plan's parameter and CLBlast's kernel */
    size_t names;
    const char *name[MOST_NAMES];
    size_t items[2];     /* the names whose product a work-group's items are; equal ones: the square */
    const uint8_t *sets; /* set 1 first, `names` values each */
    const int32_t *allowed;
};

static const uint8_t xgemm[][16] = {
    /* GEMMK MWG NWG KWG MDIMC NDIMC MDIMA NDIMB KWI VWM VWN STRM STRN SA SB KREG */
    {0, 64, 16, 16, 16, 8, 16, 8, 2, 1, 2, 0, 0, 0, 1, 1},   {0, 128, 64, 16, 16, 8, 8, 32, 2, 4, 2, 0, 0, 1, 1, 1},
    {0, 64, 64, 32, 16, 8, 8, 32, 2, 2, 2, 0, 0, 1, 0, 1},   {0, 128, 64, 16, 16, 16, 32, 16, 2, 4, 2, 0, 0, 0, 1, 1},
    {0, 128, 64, 32, 8, 32, 32, 8, 2, 4, 1, 0, 0, 1, 0, 1},  {0, 128, 64, 16, 8, 16, 16, 16, 2, 8, 1, 0, 0, 0, 1, 1},
    {0, 128, 64, 16, 32, 8, 16, 16, 2, 4, 1, 0, 0, 0, 0, 1}, {0, 64, 32, 16, 8, 8, 32, 16, 2, 1, 2, 0, 0, 1, 0, 1},
    {1, 64, 64, 1, 16, 4, 16, 4, 1, 4, 8, 0, 0, 0, 0, 8},    {1, 16, 128, 1, 2, 16, 2, 16, 1, 4, 8, 0, 0, 0, 0, 8},
    {1, 64, 64, 1, 8, 8, 8, 8, 1, 4, 2, 0, 0, 0, 0, 2},      {1, 64, 16, 1, 4, 16, 4, 16, 1, 4, 1, 0, 0, 0, 0, 4},
    {1, 128, 32, 1, 8, 16, 8, 16, 1, 8, 1, 0, 0, 0, 0, 1},   {1, 16, 16, 1, 8, 2, 8, 2, 1, 1, 4, 0, 0, 0, 0, 4},
};
static const uint8_t direct[][10] = {
    /* WGD MDIMCD NDIMCD MDIMAD NDIMBD KWID VWMD VWND PADA PADB */
    {64, 16, 8, 16, 16, 16, 2, 4, 0, 0}, {32, 8, 32, 16, 32, 16, 2, 1, 1, 0}, {64, 16, 16, 16, 32, 16, 4, 1, 0, 0},
    {32, 8, 8, 16, 8, 8, 2, 1, 0, 0},    {16, 8, 16, 8, 8, 8, 1, 1, 0, 0},    {32, 16, 16, 32, 8, 16, 1, 1, 1, 1},
};
/* DIMX DIMY WPT VW; DIMX DIMY WPTX WPTY; DIM WPT PAD SHUFFLE; TILE WPT PAD */
static const uint8_t copy[][4] = {{16, 16, 8, 4}, {8, 8, 2, 2}, {8, 32, 4, 2}, {16, 8, 1, 8}};
static const uint8_t pad[][4] = {{16, 16, 1, 4}, {8, 32, 4, 1}, {32, 8, 1, 1}, {8, 32, 4, 2}};
static const uint8_t transpose[][4] = {{16, 2, 0, 0}, {8, 8, 0, 0}, {4, 4, 0, 0}, {8, 2, 1, 1}};
static const uint8_t pad_transpose[][3] = {{8, 2, 0}, {16, 1, 1}, {8, 4, 0}, {16, 4, 0}};

static const int32_t up_to_4[] = {0, 1, 2, 3, 4, -1}, up_to_6[] = {0, 1, 2, 3, 4, 5, 6, -1};
static const int32_t up_to_14[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -1};
_Static_assert(sizeof xgemm == 14 * 16 && sizeof direct == 6 * 10 && sizeof copy == 4 * 4 && sizeof pad == 4 * 4 &&
                   sizeof transpose == 4 * 4 && sizeof pad_transpose == 4 * 3,
               "the tables are as long as the lists above say");

static const struct kernel kernels[] = {
    {"xgemm",
     "Xgemm",
     16,
     {"GEMMK", "MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN", "STRM", "STRN", "SA", "SB",
      "KREG"},
     {4, 5},
     xgemm[0],
     up_to_14},
    {"direct",
     "XgemmDirect",
     10,
     {"WGD", "MDIMCD", "NDIMCD", "MDIMAD", "NDIMBD", "KWID", "VWMD", "VWND", "PADA", "PADB"},
     {1, 2},
     direct[0],
     up_to_6},
    {"copy", "Copy", 4, {"COPY_DIMX", "COPY_DIMY", "COPY_WPT", "COPY_VW"}, {0, 1}, copy[0], up_to_4},
    {"pad", "Pad", 4, {"PAD_DIMX", "PAD_DIMY", "PAD_WPTX", "PAD_WPTY"}, {0, 1}, pad[0], up_to_4},
    {"transpose", "Transpose", 4, {"TRA_DIM", "TRA_WPT", "TRA_PAD", "TRA_SHUFFLE"}, {0, 0}, transpose[0], up_to_4},
    {"padtranspose", "Padtranspose", 3, {"PADTRA_TILE", "PADTRA_WPT", "PADTRA_PAD"}, {0, 0}, pad_transpose[0], up_to_4},
};
#define KERNELS (sizeof kernels / sizeof kernels[0])

/* What this process has set, by device; under CLBlast's lock, as CLBlast's own tables are. */
static struct {
    cl_device_id device;
    uint8_t set[KERNELS];
} clblast_in_force[DEVICES];

/* The device's entry, made if there is room, or NULL. */
static uint8_t *sets_of(cl_device_id device)
{
    for (size_t i = 0; i < DEVICES; i++) {
        if (!clblast_in_force[i].device)
            clblast_in_force[i].device = device;
        if (clblast_in_force[i].device == device)
            return clblast_in_force[i].set;
    }
    return NULL;
}

/* A work-group of the set is one that the device has; local memory, at most 32 KiB, every device has. */
static bool fits(const struct kernel *kernel, const uint8_t *values, const clattn_device_info *info)
{
    size_t x = values[kernel->items[0]], y = values[kernel->items[1]];
    return x * y <= info->max_work_group && x <= info->max_work_item[0] && y <= info->max_work_item[1] &&
           info->local_memory >= 32768;
}

static bool override(cl_device_id device, const struct kernel *kernel, const uint8_t *values)
{
    size_t wide[MOST_NAMES];
    const char *names[MOST_NAMES];
    for (size_t i = 0; i < kernel->names; i++) {
        wide[i] = values[i];
        names[i] = kernel->name[i];
    }
    return CLBlastOverrideParameters(device, kernel->kernel, CLBlastPrecisionSingle, kernel->names, names, wide) ==
           CLBlastSuccess;
}

/* Under the lock. */
static const char *set_all(const struct capabilities *caps, const size_t wanted[KERNELS])
{
    uint8_t *sets = sets_of(caps->device);
    bool differs = false;
    for (size_t i = 0; i < KERNELS; i++) {
        const uint8_t *values = kernels[i].sets + (wanted[i] ? wanted[i] - 1 : 0) * kernels[i].names;
        differs = differs || (wanted[i] && (!sets || sets[i] != wanted[i]));
        if (wanted[i] && !fits(&kernels[i], values, &caps->info))
            return "a set of CLBlast's parameters does not fit the device";
    }
    if (!differs)
        return NULL;
    if (!sets || !clblast_library_alone())
        return "CLBlast's parameters are the process's, and other plans use them";
    for (size_t i = 0; i < KERNELS; i++)
        if (wanted[i] && sets[i] != wanted[i]) {
            if (!override(caps->device, &kernels[i], kernels[i].sets + (wanted[i] - 1) * kernels[i].names))
                return "CLBlast does not take these parameters";
            sets[i] = (uint8_t)wanted[i];
        }
    return NULL;
}

clattn_status clblast_parameters_prepare(clattn_plan *plan)
{
    size_t wanted[KERNELS] = {0};
    for (size_t i = 0; i < KERNELS; i++)
        tuning_parameter(&plan->tuning, kernels[i].parameter, kernels[i].allowed, &wanted[i]);
    clblast_library_lock();
    const char *reason = set_all(&plan->context->device.caps, wanted);
    clblast_library_unlock();
    return reason ? report_error(&plan->context->device.report, CLATTN_ERROR_UNSUPPORTED, "%s", reason)
                  : CLATTN_SUCCESS;
}
