#include "tool/cli/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/context.h>

#include "base/os.h"
#include "tool/cli/os_crash.h"
#include "tool/cli/os_tool.h"

#define AFTER "CLATTN_AFTER_CRASH"
#define PROBE "CLATTN_PROBE"
#define MOST_DRIVERS 32 /* more than any machine has; after a crash further ones are left out */

typedef struct driver {
    char *path;
    bool library;
    int signal_number; /* the signal that ended the process that loaded it alone; 0: none */
} driver;

static struct {
    char **arguments;   /* this process's */
    char **environment; /* this process's and `setting` */
    char setting[64];   /* AFTER, this process's number and two digits for the signal's */
    bool recovered;     /* this process executed this program again, because it crashed */
    driver drivers[MOST_DRIVERS];
    size_t count;
    char *skipped[MOST_DRIVERS];
    size_t skipped_count;
    char folder[64]; /* the folder that the loader reads; "": the usual one */
} crash;

static bool add_driver(void *user, const char *path, bool library)
{
    (void)user;
    if (crash.count == MOST_DRIVERS)
        return false;
    size_t bytes = strlen(path) + 1;
    char *copy = malloc(bytes);
    if (copy == NULL)
        return false;
    memcpy(copy, path, bytes);
    crash.drivers[crash.count++] = (driver){copy, library, 0};
    return true;
}

/* Runs a child that loads the driver alone.  `signal_number` is the signal that ended this process. */
static bool probe(driver *candidate, int signal_number)
{
    char folder[64], vendors[128], parent[64], output[64];
    const char *const arguments[] = {NULL};
    const char *const settings[] = {vendors, parent, "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", NULL};
    double seconds;
    int status = 0;
    if (!os_temporary_folder(folder, sizeof folder))
        return false;
    snprintf(vendors, sizeof vendors, "OCL_ICD_VENDORS=%s", folder);
    snprintf(parent, sizeof parent, PROBE "=%ld", os_process_id());
    bool done = os_icd_place(folder, 0, candidate->path, candidate->library) &&
                os_run_self(arguments, settings, true, output, sizeof output, &status, &seconds);
    os_remove_folder(folder);
    /* A child that handles the signal itself, as sanitizers do, exits with a status instead. */
    if (done && status != TOOL_DONE)
        candidate->signal_number = status > 128 ? status - 128 : signal_number;
    return done;
}

/* Writes the drivers' names, separated by commas. */
static void list_drivers(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < crash.count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", crash.drivers[i].path);
}

static bool remember(const driver *culprit)
{
    static const char format[] = "%s: passed over, its library ends the process with signal %d when it is "
                                 "loaded or asked for its devices";
    size_t bytes = sizeof format + strlen(culprit->path) + 16;
    char *line = malloc(bytes);
    if (line == NULL)
        return false;
    snprintf(line, bytes, format, culprit->path, culprit->signal_number);
    crash.skipped[crash.skipped_count++] = line;
    return true;
}

/* Finds out which drivers are to blame and leaves them out. */
static int recover(int signal_number)
{
    char names[2048];
    size_t good = 0, placed = 0;
    os_icd_list(add_driver, NULL);
    list_drivers(names, sizeof names);
    for (size_t i = 0; i < crash.count; i++) {
        if (!probe(&crash.drivers[i], signal_number))
            return complain(TOOL_NO_DEVICE,
                            "OpenCL ended the process with signal %d while its devices were listed, one of %s; "
                            "choose one that works with OCL_ICD_VENDORS",
                            signal_number, names);
        if (crash.drivers[i].signal_number == 0)
            good++;
        else if (!remember(&crash.drivers[i]))
            return complain(TOOL_FAILED, "out of memory");
    }
    if (crash.skipped_count == 0)
        return complain(TOOL_NO_DEVICE,
                        "OpenCL ended the process with signal %d while a device was looked for, though each of its "
                        "drivers lists its devices when alone (%s): choose one with OCL_ICD_VENDORS",
                        signal_number, names);
    if (good == 0)
        return complain(TOOL_NO_DEVICE,
                        "no usable OpenCL driver: %s %s the process with signal %d; repair or remove it, or choose "
                        "another with OCL_ICD_VENDORS",
                        names, crash.count == 1 ? "ends" : "end", crash.drivers[0].signal_number);
    if (!os_temporary_folder(crash.folder, sizeof crash.folder))
        return complain(TOOL_FAILED, "no folder for the list of OpenCL drivers could be made in " OS_TEMPORARY);
    for (size_t i = 0; i < crash.count; i++)
        if (crash.drivers[i].signal_number == 0 &&
            !os_icd_place(crash.folder, placed++, crash.drivers[i].path, crash.drivers[i].library))
            return complain(TOOL_FAILED, "%s: cannot be written", crash.folder);
    return os_icd_use(crash.folder) ? TOOL_DONE : complain(TOOL_FAILED, "out of memory");
}

static int run_probe(void)
{
    clattn_devices *devices = NULL;
    clattn_devices_create(NULL, &devices);
    clattn_devices_release(&devices);
    return TOOL_DONE;
}

int crash_start(char **argv, bool *finished)
{
    const char *after = os_environment(AFTER), *probing = os_environment(PROBE);
    const char *const settings[] = {crash.setting, NULL};
    long process = 0;
    int signal_number = 0;
    *finished = probing != NULL && atol(probing) == os_parent_id();
    if (*finished)
        return run_probe();
    if (after != NULL && sscanf(after, "%ld:%d", &process, &signal_number) == 2 && process == os_process_id()) {
        crash.recovered = true;
        return recover(signal_number);
    }
    snprintf(crash.setting, sizeof crash.setting, AFTER "=%ld:??", os_process_id());
    crash.arguments = argv;
    crash.environment = os_changed_environment(settings);
    return crash.environment != NULL ? TOOL_DONE : complain(TOOL_FAILED, "out of memory");
}

void crash_guard_begin(void)
{
    os_crash_begin(crash.recovered ? NULL : crash.arguments, crash.environment,
                   crash.setting + strlen(crash.setting) - (crash.recovered ? 0 : 2),
                   "clattn: OpenCL ends the process whichever driver is left out: choose one with OCL_ICD_VENDORS\n",
                   TOOL_NO_DEVICE);
}

void crash_guard_end(void)
{
    os_crash_end();
    /* The loader has read the folder. */
    if (crash.folder[0] != '\0')
        os_remove_folder(crash.folder);
    crash.folder[0] = '\0';
}

const char *crash_skipped(size_t index)
{
    return index < crash.skipped_count ? crash.skipped[index] : NULL;
}
