#include "plan/wisdom/tuning.h"

#include <string.h>

#include "plan/plan.h"
#include "base/characters.h"
#include "base/size.h"
#include "clattn/tuning.h"

static const struct setting *find(const struct settings *settings, const char *name)
{
    for (size_t i = 0; i < settings->count; i++)
        if (!strcmp(settings->at[i].name, name))
            return &settings->at[i];
    return NULL;
}

/* Reads one name=value at *at, and moves *at behind it. */
static bool parse_one(const char **at, const char *end, struct setting *setting)
{
    const char *p = *at;
    size_t length = 0, digits = 0;
    while (p < end && (is_letter(*p) || (length && is_digit(*p))) && length < TUNING_NAME - 1)
        setting->name[length++] = *p++;
    setting->name[length] = '\0';
    if (!length || p == end || *p++ != '=')
        return false;
    for (setting->value = 0; p < end && is_digit(*p) && digits < 9; digits++)
        setting->value = setting->value * 10 + (*p++ - '0');
    *at = p;
    return digits > 0 && (p == end || *p == ' ');
}

bool settings_parse(const char *text, size_t length, struct settings *settings)
{
    const char *p = text, *end = text + length;
    settings->count = 0;
    while (p < end) {
        struct setting setting;
        if (settings->count == TUNING_MOST || (settings->count && *p++ != ' ') || !parse_one(&p, end, &setting) ||
            find(settings, setting.name))
            return false;
        settings->at[settings->count++] = setting;
    }
    return true;
}

void tuning_parameter(struct tuning *tuning, const char *name, const int32_t *allowed, size_t *value)
{
    if (!tuning)
        return;
    const struct setting *given = tuning->given ? find(tuning->given, name) : NULL;
    for (size_t i = 0; given && allowed[i] >= 0; i++)
        if (allowed[i] == given->value) {
            *value = (size_t)given->value;
            tuning->taken |= (uint64_t)1 << (given - tuning->given->at);
        }
    if (tuning->count < TUNING_MOST)
        tuning->at[tuning->count++] = (struct parameter){name, allowed, (int32_t)*value};
}

void tuning_flag(struct tuning *tuning, const char *name, bool *value)
{
    static const int32_t both[] = {0, 1, -1};
    size_t number = *value;
    tuning_parameter(tuning, name, both, &number);
    *value = number != 0;
}

void tuning_restart(struct tuning *tuning)
{
    tuning->count = 0;
    tuning->taken = 0;
}

bool tuning_all_taken(const struct tuning *tuning, const struct setting **first)
{
    for (size_t i = 0; tuning->given && i < tuning->given->count; i++)
        if (!(tuning->taken >> i & 1)) {
            *first = &tuning->given->at[i];
            return false;
        }
    return true;
}

void tuning_print(const struct tuning *tuning, struct strbuf *text)
{
    for (size_t i = 0; i < tuning->count; i++)
        strbuf_printf(text, " %s=%d", tuning->at[i].name, (int)tuning->at[i].value);
}

size_t clattn_plan_parameter_count(const clattn_plan *plan)
{
    return plan ? plan->tuning.count : 0;
}

clattn_status clattn_plan_parameter_info(const clattn_plan *plan, size_t index, clattn_plan_parameter *parameter)
{
    if (!plan || !parameter || index >= plan->tuning.count)
        return report_error(plan ? &plan->context->device.report : NULL, CLATTN_ERROR_INVALID_ARGUMENT,
                            "plan or parameter is NULL, or there is no parameter %zu", index);
    const struct parameter *own = &plan->tuning.at[index];
    clattn_plan_parameter about = {.name = own->name, .value = own->value, .allowed = own->allowed};
    while (own->allowed[about.allowed_count] >= 0)
        about.allowed_count++;
    if (!struct_write(parameter, sizeof about, sizeof about, &about))
        return report_error(&plan->context->device.report, CLATTN_ERROR_INVALID_STRUCT,
                            "clattn_plan_parameter.size is %zu, expected at least %zu", parameter->size, sizeof about);
    return CLATTN_SUCCESS;
}
