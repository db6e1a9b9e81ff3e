/* A context's wisdom: its file, its keys, and the functions of clattn/tuning.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/try.h"
#include "clattn/tuning.h"
#include "clattn/version.h"
#include "plan/plan.h"

static clattn_status no_memory(clattn_context *context)
{
    return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for wisdom");
}

/* ---- the file ---- */

/* Reads the records of the file; none if there is no folder or no file.  Logs a damaged file and returns FORMAT;
 * otherwise OUT_OF_MEMORY or IO, without a message. */
static clattn_status read_file(clattn_context *context, struct wisdom_list *list)
{
    uint8_t *text;
    size_t bytes, line;
    const char *reason;
    int folder = context->programs.binaries.folder;
    errno = ENOENT;
    if (folder < 0 || !os_private_file_read(folder, WISDOM_FILE, WISDOM_BYTES, &text, &bytes))
        return errno == ENOENT ? CLATTN_SUCCESS : errno == ENOMEM ? CLATTN_ERROR_OUT_OF_MEMORY : CLATTN_ERROR_IO;
    clattn_status status = wisdom_parse((const char *)text, bytes, list, &line, &reason);
    free(text);
    if (status == CLATTN_ERROR_FORMAT)
        report_log(&context->device.report, CLATTN_LOG_LEVEL_WARNING,
                   "the wisdom in the cache folder is damaged and counts as none: line %zu, %s", line, reason);
    if (status != CLATTN_SUCCESS)
        wisdom_list_clear(list);
    return status;
}

clattn_status context_wisdom_init(clattn_context *context)
{
    char digest[SOURCE_DIGEST], kernels[WISDOM_KERNELS];
    source_digest(context->programs.kernel_dir, digest);
    snprintf(kernels, sizeof kernels, "%s-%s", CLATTN_VERSION_STRING, digest);
    if (wisdom_init(&context->wisdom, kernels) != CLATTN_SUCCESS)
        return report_error(NULL, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a lock");
    read_file(context, &context->wisdom.list); /* a context without wisdom works, so failures do not count */
    return CLATTN_SUCCESS;
}

/* Drivers' names are cut here: the first 100 bytes tell devices apart. */
#define NAME_BYTES 100

char *context_wisdom_key(const clattn_context *context, const char *operator_name, const char *bucket)
{
    const clattn_device_info *info = &context->device.caps.info;
    struct strbuf key = {0};
    wisdom_token(&key, info->platform, NAME_BYTES);
    strbuf_append(&key, ":", 1);
    wisdom_token(&key, info->name, NAME_BYTES);
    strbuf_append(&key, " ", 1);
    wisdom_token(&key, info->driver, NAME_BYTES);
    strbuf_printf(&key, " %s %s %s", context->wisdom.kernels, operator_name, bucket);
    return strbuf_take(&key);
}

/* ---- the functions ---- */

clattn_status clattn_wisdom_export(clattn_context *context, char *buffer, size_t capacity, size_t *bytes)
{
    clattn_status status = CLATTN_SUCCESS;
    struct strbuf text = {0};
    TRY(context_check(context));
    if (!bytes || (capacity && !buffer))
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "buffer or bytes is NULL");
    mtx_lock(&context->wisdom.lock);
    wisdom_write(&context->wisdom.list, &text);
    mtx_unlock(&context->wisdom.lock);
    *bytes = text.length;
    if (text.failed)
        status = no_memory(context);
    else if (capacity >= text.length)
        memcpy(buffer, text.text, text.length);
    else if (capacity)
        status = report_error(&context->device.report, CLATTN_ERROR_BUFFER_TOO_SMALL,
                              "the wisdom takes %zu bytes, the buffer has %zu", text.length, capacity);
    strbuf_clear(&text);
fail:
    return status;
}

/* Caller holds the lock of a context's list.  Moves all records of `from` into `to`; `from` is then empty. */
static bool move(struct wisdom_list *from, struct wisdom_list *to)
{
    bool complete = true;
    for (size_t i = 0; i < from->count; i++) {
        complete = wisdom_list_add(to, from->record[i]) && complete;
        from->record[i].line = NULL;
    }
    wisdom_list_clear(from);
    return complete;
}

clattn_status clattn_wisdom_import(clattn_context *context, const char *text, size_t bytes, size_t *records)
{
    clattn_status status;
    struct wisdom_list list = {0};
    size_t line;
    const char *reason;
    TRY(context_check(context));
    if (!text)
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "text is NULL");
    status = wisdom_parse(text, bytes, &list, &line, &reason);
    if (status != CLATTN_SUCCESS) {
        report_error(&context->device.report, status, "wisdom, line %zu: %s", line, reason);
        goto fail;
    }
    if (records)
        *records = list.count;
    mtx_lock(&context->wisdom.lock);
    bool complete = move(&list, &context->wisdom.list);
    mtx_unlock(&context->wisdom.lock);
    plan_cache_empty(&context->plans);
    if (!complete)
        status = no_memory(context);
fail:
    wisdom_list_clear(&list);
    return status;
}

clattn_status clattn_wisdom_clear(clattn_context *context)
{
    clattn_status status = context_check(context);
    if (status != CLATTN_SUCCESS)
        return status;
    mtx_lock(&context->wisdom.lock);
    wisdom_list_clear(&context->wisdom.list);
    mtx_unlock(&context->wisdom.lock);
    plan_cache_empty(&context->plans);
    return CLATTN_SUCCESS;
}

/* Adds the plan as a record of its shape bucket; rank 0 drops the bucket's other records first. */
static clattn_status add(clattn_plan *plan, uint32_t rank, uint64_t nanoseconds)
{
    struct strbuf line = {0};
    clattn_context *context = plan->context;
    clattn_status status = CLATTN_SUCCESS;
    strbuf_printf(&line, "%s %s %u %llu", plan->wisdom_key, plan->solver, (unsigned)rank,
                  (unsigned long long)nanoseconds);
    tuning_print(&plan->tuning, &line);
    struct wisdom_record record = {
        .key = strlen(plan->wisdom_key), .solver = strlen(plan->solver), .rank = rank, .line = strbuf_take(&line)};
    if (!record.line)
        return no_memory(context);
    mtx_lock(&context->wisdom.lock);
    if (!rank)
        wisdom_list_forget(&context->wisdom.list, plan->wisdom_key);
    if (!wisdom_list_add(&context->wisdom.list, record))
        status = no_memory(context);
    mtx_unlock(&context->wisdom.lock);
    plan_cache_empty(&context->plans);
    return status;
}

/* Whether a plan's context may be used; for functions that are given a plan. */
static clattn_status check(const clattn_plan *plan)
{
    return plan ? context_check(plan->context) : report_error(NULL, CLATTN_ERROR_INVALID_ARGUMENT, "plan is NULL");
}

clattn_status clattn_wisdom_learn(clattn_plan *plan, uint32_t rank, uint64_t nanoseconds)
{
    clattn_status status = check(plan);
    if (status != CLATTN_SUCCESS)
        return status;
    if (rank >= WISDOM_RANKS || nanoseconds > (uint64_t)INT64_MAX || !plan->wisdom_key)
        return report_error(&plan->context->device.report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "rank %u or nanoseconds too large, or a plan of an operator that is not tuned",
                            (unsigned)rank);
    return add(plan, rank, nanoseconds);
}

const char *clattn_wisdom_key(const clattn_plan *plan)
{
    return plan ? plan->wisdom_key : NULL;
}

clattn_status clattn_wisdom_forget(clattn_plan *plan)
{
    clattn_status status = check(plan);
    if (status != CLATTN_SUCCESS || !plan->wisdom_key)
        return status;
    mtx_lock(&plan->context->wisdom.lock);
    wisdom_list_forget(&plan->context->wisdom.list, plan->wisdom_key);
    mtx_unlock(&plan->context->wisdom.lock);
    plan_cache_empty(&plan->context->plans);
    return CLATTN_SUCCESS;
}

clattn_status clattn_wisdom_save(clattn_context *context, clattn_wisdom_mode mode)
{
    clattn_status status;
    struct wisdom_list file = {0}, own = {0};
    struct strbuf text = {0};
    size_t line;
    const char *reason;
    TRY(context_check(context));
    if (mode != CLATTN_WISDOM_MODE_MERGE && mode != CLATTN_WISDOM_MODE_REPLACE)
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "mode is none that is known");
    const struct binary_cache *binaries = &context->programs.binaries;
    if (binaries->folder < 0)
        return report_error(&context->device.report, CLATTN_ERROR_UNSUPPORTED, "there is no folder for wisdom: %s",
                            binaries->reason ? binaries->reason : "the cache is off");
    mtx_lock(&context->wisdom.lock);
    wisdom_write(&context->wisdom.list, &text);
    mtx_unlock(&context->wisdom.lock);
    if (mode == CLATTN_WISDOM_MODE_MERGE && !text.failed) {
        status = wisdom_parse(text.text, text.length, &own, &line, &reason);
        if (status != CLATTN_SUCCESS) {
            report_error(&context->device.report, status, "wisdom, line %zu: %s", line, reason);
            goto fail;
        }
        status = read_file(context, &file);
        if (status == CLATTN_ERROR_OUT_OF_MEMORY)
            TRY(no_memory(context));
        if (status == CLATTN_ERROR_IO)
            TRY(report_error(&context->device.report, status, "the wisdom could not be read from %s", binaries->path));
        status = CLATTN_SUCCESS; /* a damaged file counts as none */
        for (size_t i = 0; i < own.count; i++) {
            own.record[i].line[own.record[i].key] = '\0'; /* the key alone */
            wisdom_list_forget(&file, own.record[i].line);
            own.record[i].line[own.record[i].key] = ' ';
        }
        bool complete = move(&own, &file);
        strbuf_clear(&text);
        if (complete)
            wisdom_write(&file, &text);
        if (!complete)
            TRY(no_memory(context));
    }
    if (text.failed)
        status = no_memory(context);
    else if (!os_private_file_write(binaries->folder, WISDOM_FILE, text.text, text.length))
        status = report_error(&context->device.report, CLATTN_ERROR_IO, "the wisdom could not be written to %s",
                              binaries->path);
    else
        os_private_folder_sync(binaries->folder); /* measured for minutes, unlike the cache's entries */
fail:
    strbuf_clear(&text);
    wisdom_list_clear(&own);
    wisdom_list_clear(&file);
    return status;
}
