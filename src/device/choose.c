#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/enumerate.h"

static bool contains_folded(const char *text, const char *part, size_t length)
{
    for (;; text++) {
        size_t i = 0;
        while (i < length && text[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
        if (!*text)
            return false;
    }
}

static bool all_digits(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static bool matches(const clattn_device_info *info, const char *spec)
{
    if (!strcmp(spec, "gpu"))
        return info->device_class == CLATTN_DEVICE_CLASS_GPU;
    if (!strcmp(spec, "cpu"))
        return info->device_class == CLATTN_DEVICE_CLASS_CPU || info->device_class == CLATTN_DEVICE_CLASS_POCL;
    if (!strcmp(spec, "pocl"))
        return info->device_class == CLATTN_DEVICE_CLASS_POCL;
    const char *colon = strchr(spec, ':');
    return colon && contains_folded(info->platform, spec, (size_t)(colon - spec)) &&
           contains_folded(info->name, colon + 1, strlen(colon + 1));
}

clattn_status devices_choose(const struct clattn_devices *devices, const char *spec, size_t *index)
{
    if (!spec || !*spec) {
        if (devices->count && devices->caps[0].info.device_class != CLATTN_DEVICE_CLASS_SOFTWARE) {
            *index = 0;
            return CLATTN_SUCCESS;
        }
        return report_error(NULL, CLATTN_ERROR_NO_DEVICE,
                            devices->count ? "only software devices are here (%s): ask for one by name"
                                           : "no OpenCL platform has a usable device%s",
                            devices->count ? devices->caps[0].info.name : "");
    }
    if (all_digits(spec)) {
        errno = 0;
        unsigned long number = strtoul(spec, NULL, 10);
        if (errno == 0 && number < devices->count) {
            *index = number;
            return CLATTN_SUCCESS;
        }
    } else {
        for (size_t i = 0; i < devices->count; i++)
            if (matches(&devices->caps[i].info, spec)) {
                *index = i;
                return CLATTN_SUCCESS;
            }
    }
    char names[512] = "";
    for (size_t i = 0, used = 0; i < devices->count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%zu is %s:%s", i ? ", " : "", i,
                                 devices->caps[i].info.platform, devices->caps[i].info.name);
    return report_error(NULL, CLATTN_ERROR_NO_DEVICE,
                        "no device matches \"%s\"; %s. A device is asked for by gpu, cpu, pocl, its number, or parts "
                        "of its names as in PLATFORM:DEVICE",
                        spec, devices->count ? names : "there is none");
}
