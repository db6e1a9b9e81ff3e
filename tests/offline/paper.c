#include "offline/paper.h"

#include <string.h>

char paper_log[8192];

static void keep_log(void *user, clattn_log_level level, const char *message)
{
    (void)user;
    (void)level;
    if (strlen(paper_log) + strlen(message) + 2 < sizeof paper_log)
        strcat(strcat(paper_log, message), "\n");
}

clattn_context *paper_context(const offline_target *target, bool checks)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_context *context = NULL;
    platform_use(target);
    params.device = "0";
    params.get_proc = platform_get_proc;
    params.cache_mode = CLATTN_CACHE_MODE_OFF;
    params.self_check = checks ? CLATTN_SELF_CHECK_ON : CLATTN_SELF_CHECK_OFF;
    params.log = keep_log;
    *paper_log = '\0';
    assert_status(NULL, clattn_context_create(&params, &context), CLATTN_SUCCESS);
    return context;
}

void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in\n%s", part, text);
}

void paper_hide_capability(offline_target *target)
{
    target->capability = 0;
}

void paper_change_driver(offline_target *target)
{
    target->platform = "rusticl";
}
