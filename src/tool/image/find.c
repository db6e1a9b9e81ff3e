#include "tool/image/find.h"

#include <stdio.h>
#include <string.h>

#include "tool/cli/os_tool.h"
#include "tool/tool.h"

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), count = strlen(end);
    return length > count && strcmp(name + length - count, end) == 0;
}

/* Whether a name is that of a file that PyTorch's torch.save has written. */
static bool is_pickle(const char *name)
{
    return ends_with(name, ".pth") || ends_with(name, ".pt") || ends_with(name, ".ckpt");
}

/* What a folder has; the names are those that come first in alphabetical order. */
typedef struct listing {
    size_t weights, pickles;
    char first[256], pickle[256];
} listing;

static void count(size_t *number, char first[256], const char *name)
{
    if ((*number)++ == 0 || strcmp(name, first) < 0)
        snprintf(first, 256, "%s", name);
}

static bool list(void *user, const char *name, uint64_t bytes, int64_t changed)
{
    listing *l = user;
    (void)bytes;
    (void)changed;
    if (ends_with(name, ".safetensors"))
        count(&l->weights, l->first, name);
    else if (is_pickle(name))
        count(&l->pickles, l->pickle, name);
    return true;
}

static int refuse_pickle(const char *path)
{
    return complain(
        TOOL_BAD_INPUT,
        "%s: is a file of torch.save's, expected a safetensors file; 'man clattn' has the line of Python that "
        "makes one of it",
        path);
}

static int find_in_folder(const char *folder, model_path *weights)
{
    listing l = {0};
    if (!model_path_in(folder, "model.safetensors", weights))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    if (os_look_at(weights->text) == OS_PATH_FILE)
        return TOOL_DONE;
    if (!os_list_folder(folder, list, &l))
        return complain(TOOL_BAD_INPUT, "%s: the folder cannot be read", folder);
    if (l.weights > 1)
        return complain(TOOL_BAD_INPUT,
                        "%s: has %zu files that end in .safetensors, expected one, or model.safetensors", folder,
                        l.weights);
    if (l.weights + l.pickles == 0)
        return complain(TOOL_BAD_INPUT, "%s: has no file that ends in .safetensors, expected one with SwinIR's weights",
                        folder);
    if (!model_path_in(folder, l.weights == 1 ? l.first : l.pickle, weights))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", folder);
    return l.weights == 1 ? TOOL_DONE : refuse_pickle(weights->text);
}

int find_weights(const char *path, model_path *weights)
{
    if (os_look_at(path) == OS_PATH_FOLDER)
        return find_in_folder(path, weights);
    if (os_look_at(path) == OS_PATH_FILE && is_pickle(path))
        return refuse_pickle(path);
    const int length = snprintf(weights->text, sizeof weights->text, "%s", path);
    if (length < 0 || (size_t)length >= sizeof weights->text)
        return complain(TOOL_BAD_INPUT, "%s: the file's name is too long", path);
    return TOOL_DONE;
}
