#include "tool/cli/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/context.h>

#include "tool/cli/os_crash.h"
#include "tool/cli/os_tool.h"

#define AFTER "--after-crash="
#define PROBE "--probe"
#define MOST_DRIVERS 32 /* more than any machine has; after a crash further ones are left out */

typedef struct driver {
    char *path;
    bool library;
    int signal_number; /* the signal that ended the process that loaded it alone; 0: none */
} driver;

static struct {
    char **again;   /* this process's arguments, preceded by AFTER */
    char first[24]; /* AFTER and the signal's number */
    bool recovered; /* this process was started by one that crashed */
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
    char folder[64], vendors[128], output[64];
    const char *const arguments[] = {PROBE, NULL};
    const char *const settings[] = {vendors, "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", NULL};
    double seconds;
    int status = 0;
    if (!os_temporary_folder(folder, sizeof folder))
        return false;
    snprintf(vendors, sizeof vendors, "OCL_ICD_VENDORS=%s", folder);
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

int crash_start(int *argc, char ***argv, bool *finished)
{
    *finished = *argc == 2 && strcmp((*argv)[1], PROBE) == 0;
    if (*finished)
        return run_probe();
    if (*argc > 1 && strncmp((*argv)[1], AFTER, sizeof AFTER - 1) == 0) {
        crash.recovered = true;
        int signal_number = atoi((*argv)[1] + sizeof AFTER - 1);
        (*argv)[1] = (*argv)[0];
        (*argv)++;
        (*argc)--;
        return recover(signal_number);
    }
    crash.again = calloc((size_t)*argc + 2, sizeof *crash.again);
    if (crash.again == NULL)
        return complain(TOOL_FAILED, "out of memory");
    snprintf(crash.first, sizeof crash.first, AFTER "??");
    crash.again[0] = (char *)"clattn";
    crash.again[1] = crash.first;
    for (int i = 1; i < *argc; i++)
        crash.again[i + 1] = (*argv)[i];
    return TOOL_DONE;
}

void crash_guard_begin(void)
{
    os_crash_begin(crash.recovered ? NULL : crash.again,
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
