/* Which texts of a user are refused before any compiler sees them, and what is read in the logs of compilers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/snippet_log.h"
#include "program/snippet_refuse.h"
#include "program/snippet_text.h"
#include "support/check.h"

#define SCORE "float score_mod(float score, int batch, int head, int query, int key, user_data user)\n"

static void expect(const char *text, const char *message)
{
    const struct source_snippets snippets = {
        {{"score_mod", text, "float score_mod(float score)"}, {"mask_mod", "", "int mask_mod(int key)"}}};
    struct strbuf found = {0};

    assert_true(snippet_refuse(&snippets, 0, &found));
    if (message == NULL)
        assert_null(found.text);
    else if (found.text == NULL || strncmp(found.text, message, strlen(message)) != 0)
        fail_msg("%s: expected %s, found %s", text, message, found.text ? found.text : "nothing");
    strbuf_clear(&found);
}

/* Each is refused by its line and name although a compiler may take it. */
static void refused(void **state)
{
    static const struct {
        const char *before, *place; /* a text before a score_mod that is right */
    } table[] = {
        {"\n#include \"part.h\"\n", "score_mod:2: #include is refused"},
        {"/* \" */ # /* */ in\\\nclude </dev/stdin>\n", "score_mod:1: #include is refused"},
        {"// \\\r\n#include \"comment\"\r\n%: include_next <x>\n", "score_mod:3: #include_next is refused"},
        {"\r#import \"x\"\n", "score_mod:2: #import is refused"},
        {"#if 0 // skipped\n#embed \"x\"\n#endif\n", "score_mod:2: #embed is refused"},
        {"#if \\\n __has_include(\"x\")\n#endif\n", "score_mod:1: __has_include is refused"},
        {"#line 9 \"x\"\n", "score_mod:1: #line is refused"},
        {"\n\n# 3 \"x\" 3\n", "score_mod:3: #3 is refused"},
        {"#pragma clang optimize off\n", "score_mod:1: #pragma clang is refused"},
        {"#pragma\n", "score_mod:1: #pragma  is refused"},
        {"_Pragma(\"weak fma\")\n", "score_mod:1: _Pragma is refused"},
        {"\n\?\?=include \"x\"\n", "score_mod:2: the trigraph \?\?="},
        {"// a\?\?/\n", "score_mod:1: the trigraph \?\?/"},
        {"\n#define kernel\n", "score_mod:2: the macro kernel is refused"},
        {"# define /* 3 */ float4 double4\n", "score_mod:1: the macro float4 is refused"},
        {"#define a b\n#define __global\n", "score_mod:2: the macro __global is refused"},
        {"#define local\n", "score_mod:1: the macro local is refused"},
        {"#define mask_mod my_mask\n", "score_mod:1: the macro mask_mod is refused"},
        {"float __attribute__((overloadable)) exp(float x)\n{ return x; }\n", "score_mod:1: overloadable is refused"},
        {"float other(void) __asm__(\"fma\");\n", "score_mod:1: __asm__ is refused"},
        {"/* open\n", "score_mod: defines no function of that name"},
    };
    static const struct {
        const char *text, *message;
    } whole[] = {
        {"float scoremod(float score) { return score; }", "score_mod: defines no function of that name"},
        {"// " SCORE "{ return score; }", "score_mod: defines no function of that name"},
        {SCORE ";\nfloat other(float x) { return x; }", "score_mod: defines no function of that name"},
        {"float other(float x) { if (score_mod) { return x; } }", "score_mod: defines no function of that name"},
        {"float other(float x) { return score_mod(x); }", "score_mod: defines no function of that name"},
        {SCORE "{ score + 1; } // return score", "score_mod: has no return"},
        {SCORE "{ \"return\"; }", "score_mod: has no return"},
    };
    char text[512];

    (void)state;
    for (size_t n = 0; n < COUNT_OF(table); n++) {
        snprintf(text, sizeof text, "%s%s", table[n].before, SCORE "{ return score; }");
        expect(text, table[n].place);
    }
    for (size_t n = 0; n < COUNT_OF(whole); n++)
        expect(whole[n].text, whole[n].message);
}

/* Comments, strings and other names that resemble what is refused. */
static void taken(void **state)
{
    static const char *const before[] = {
        "",
        "// #include <x>\n/* _Pragma(\n#include <y>\n*/",
        "constant char text[] = \"#include \\\" asm\";\n",
        "#define QUOTE(x) #x\n#define JOIN(a, b) a ## b\n",
        "#define WINDOW 4\n#undef WINDOW\n#if defined WINDOW\n#elif 1\n#else\n#error no\n#endif\n#\n",
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#  pragma unroll\n",
        "#define kernels\n#define float5 1\n#define my_mask_mod\n",
        "// really??\n",
    };
    char text[512];

    (void)state;
    for (size_t n = 0; n < COUNT_OF(before); n++) {
        snprintf(text, sizeof text, "%s%s", before[n], SCORE "{ return score; }");
        expect(text, NULL);
    }
    expect("float score_mod /* of */ (float score,\n    user_data user)\n// here\n{ return score; }", NULL);
}

/* Joined lines and comments keep the numbers of the lines behind them. */
static void plain_text(void **state)
{
    static const struct {
        const char *text, *plain;
    } table[] = {
        {"a\\\nb\nc", "ab\n\nc"},
        {"a\\ \t\r\nb\r\nc\rd", "ab\n\nc\nd"},
        {"a/*\n\n*/b\nc", "a b\n\n\nc"},
        {"/\\\n* x *\\\n/ y", "  y"},
        {"\"\\\"/*\" a '\"' b", "  a   b"},
        {"\"open\n/* x */ a", " \n  a"},
        {"// x\\\ny\nz", " \n\nz"},
        {"a/* open", "a "},
        {"\\", "\\"},
        {"a \\ b", "a \\ b"},
    };

    (void)state;
    for (size_t n = 0; n < COUNT_OF(table); n++) {
        char *plain = snippet_plain(table[n].text);
        assert_non_null(plain);
        assert_string_equal(plain, table[n].plain);
        free(plain);
    }
}

/* What drivers wrote of a snippet of 9 lines behind 40 others: an assignment as a condition in line 5, and a note. */
static void logs(void **state)
{
    static const char text[] = "using the result of an assignment as a condition without parentheses";
    static const char *const formats[] = {
        "error: score_mod:5:13: %s\nwarning: score_mod:50:1: x\nerror: attention/user.h:5:1: x\nDevice failed to "
        "build\n",
        "Compilation started\nscore_mod:5:13: warning: %s [-Wparentheses]\n    5 |     if (key = 3)\n      |         "
        "~~~~^~~\n"
        "score_mod:5:13: note: place parentheses around the assignment to silence this warning\nDone.\n",
        "attention/user.h:5:1: warning: x\nscore_mod:5:13: error: %s [-Werror,-Wparentheses]\nError executing LLVM.\n",
        "input.cl:12:3: warning: the library's\ninput.cl:45:13: warning: %s\n    if (key = 3)\n        ~~~~^~~\n"
        "input.cl:45:13: note: use '==' to turn this warning: into nothing\ninput.cl:99999999999:1: error: x\n",
        "<kernel>:45:13: warning: %s\n    if (key = 3)\n        ~~~~^~~\n(): Warning: Function k is a kernel, so "
        "overriding noinline attribute. The function may be inlined when called.\n",
    };
    const struct snippet_place place = {"score_mod", 40, 9};

    (void)state;
    for (size_t n = 0; n < COUNT_OF(formats); n++) {
        char log[512], failure[600], line[128];
        struct strbuf warnings = {0}, error = {0};

        snprintf(log, sizeof log, formats[n], text);
        snprintf(line, sizeof line, "score_mod:5:13: %s\n", text);
        snippet_log_warnings(&place, log, &warnings);
        assert_non_null(warnings.text);
        assert_string_equal(warnings.text, line);
        snprintf(failure, sizeof failure, "score_mod did not build: %s\n",
                 strstr(log, n == 4   ? "<kernel>"
                             : n == 3 ? "input.cl:45"
                                      : "score"));
        snippet_log_error(&place, failure, "", &error);
        assert_non_null(error.text);
        assert_memory_equal(error.text, line, strlen(line));
        strbuf_clear(&warnings);
        strbuf_clear(&error);
    }
}

/* A function that is nowhere, as NVIDIA's linker says it and its compiler has warned of it. */
static void error_of_the_linker(void **state)
{
    const struct snippet_place place = {"mask_mod", 40, 9};
    struct strbuf message = {0};

    (void)state;
    snippet_log_error(
        &place, "mask_mod did not build: ptxas fatal : Unresolved extern function 'helper'\nmore",
        "mask_mod did not build: ptxas fatal : Unresolved extern function 'helper'\nCL_BUILD_PROGRAM_FAILURE\n"
        "<kernel>:42:10: warning: implicit declaration of function 'helper'\nmore",
        &message);
    assert_non_null(message.text);
    assert_string_equal(message.text,
                        "mask_mod:2:10: implicit declaration of function 'helper'\n"
                        "mask_mod did not build: ptxas fatal : Unresolved extern function 'helper'\nmore");
    strbuf_clear(&message);
}

/* An error without a place in the snippet is told whole. */
static void error_without_place(void **state)
{
    const struct snippet_place place = {"mask_mod", 40, 9};
    struct strbuf message = {0};

    (void)state;
    snippet_log_error(&place, "mask_mod did not build: CL_OUT_OF_RESOURCES\nmore", "", &message);
    assert_non_null(message.text);
    assert_string_equal(message.text,
                        "mask_mod: CL_OUT_OF_RESOURCES\nmask_mod did not build: CL_OUT_OF_RESOURCES\nmore");
    strbuf_clear(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(taken),
        cmocka_unit_test(plain_text),
        cmocka_unit_test(logs),
        cmocka_unit_test(error_of_the_linker),
        cmocka_unit_test(error_without_place),
    };
    return cmocka_run_group_tests_name("snippet text", tests, NULL, NULL);
}
