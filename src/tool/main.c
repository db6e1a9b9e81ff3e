/* The clattn command: runs a subcommand and checks that its output has arrived. */
#include <stdio.h>
#include <string.h>

#include <clattn/version.h>

#include "tool/cli/crash.h"
#include "tool/cli/json_text.h"
#include "tool/cli/os_tool.h"
#include "tool/run/device.h"
#include "tool.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"devices", cmd_devices, "list OpenCL devices, best first, and why any was passed over"},
    {"attention", cmd_attention, "attention of .npy files, with every variant"},
    {"explain", cmd_explain, "which solver takes an attention, and why the others do not"},
    {"softmax", cmd_softmax, "softmax over the last dimension of an .npy file"},
    {"mha", cmd_mha, "multi-head attention with weights from a safetensors file"},
    {"denoise", cmd_denoise, "non-local means of a PNG file, as attention"},
    {"embed", cmd_embed, "texts to vectors by a sentence encoder, and a search by them"},
    {"embed-image", cmd_embed_image, "pictures to vectors by ViT, DINOv2 or CLIP, and a search by them"},
    {"image", cmd_image, "a PNG file upscaled or cleaned by SwinIR"},
    {"bench", cmd_bench,
     "time attention, matmul, softmax, layernorm, mha, encoders, a ring, the startup or an enqueue"},
    {"cache", cmd_cache, "show, list or clear the cache of compiled kernels"},
    {"selftest", cmd_selftest, "compare every operator and solver with a reference"},
    {"tune", cmd_tune, "measure which solvers and tiles are best here, and keep that"},
    {"transcribe", cmd_transcribe, "the text that is spoken in a recording, by a Whisper model"},
    {"train", cmd_train, "a model that translates or writes texts, from nothing"},
    {"translate", cmd_translate, "texts in another language, by a model of 'clattn train'"},
    {"generate", cmd_generate, "how a text goes on, by a model of 'clattn train'"},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static int help(void)
{
    puts("usage: clattn COMMAND [options]\n"
         "Attention on any OpenCL device.\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-11s  %s\n", commands[i].name, commands[i].help);
    puts("\n  --version   the version of the command and of its library\n"
         "  --help      this text; 'clattn COMMAND --help' tells about one command\n"
         "\n"
         "Exit status: 0 done, 1 the computation failed, 2 bad usage or bad input, 3 no usable device.");
    return TOOL_DONE;
}

static int version(void)
{
    printf("clattn %s", CLATTN_VERSION_STRING);
    if (strcmp(CLATTN_VERSION_STRING, clattn_version_string()) != 0)
        printf(" (library %s)", clattn_version_string());
    putchar('\n');
    return TOOL_DONE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return complain(TOOL_BAD_INPUT, "missing command, see 'clattn --help'");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "--version") == 0) {
        if (argc > 2)
            return complain(TOOL_BAD_INPUT, "unexpected argument '%s' after %s", argv[2], name);
        return strcmp(name, "--version") == 0 ? version() : help();
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    return complain(TOOL_BAD_INPUT, "unknown %s '%s', see 'clattn --help'", name[0] == '-' ? "option" : "command",
                    name);
}

int main(int argc, char **argv)
{
    bool finished;
    json_watch_memory();
    os_prepare_streams();
    os_prepare_signals();
    int status = crash_start(argv, &finished);
    if (status == TOOL_DONE && !finished)
        status = dispatch(argc, argv);
    if (status == TOOL_HELPED)
        status = TOOL_DONE;
    /* Both checks always run: an error in buffered output shows only at the flush, and a lost result is a failure. */
    bool unwritten = ferror(stdout) != 0;
    unwritten = fflush(stdout) != 0 || unwritten;
    if (unwritten && status == TOOL_DONE)
        status = complain(TOOL_FAILED, "standard output: could not be written");
    if (status == TOOL_DONE)
        device_flush_warnings();
    return status;
}
