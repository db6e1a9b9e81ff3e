/* A table-driven parser of command lines.  A command is a struct that its options fill, and a table with one row for
 * each option; adding an option takes a row and a field.
 *
 * The parser accepts `--name VALUE`, `--name=VALUE` and `-x VALUE`; `--` ends the options; names are never
 * abbreviated. Each option may be given once, unless it is a list. */
#ifndef CLATTN_TOOL_CLI_OPTIONS_H
#define CLATTN_TOOL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <clattn/dtype.h>

typedef enum option_kind {
    OPTION_FLAG,   /* no value; the field is a bool */
    OPTION_TEXT,   /* any text but the empty one; a const char * into argv */
    OPTION_FLOAT,  /* a finite decimal number within float32; an option_float */
    OPTION_COUNT,  /* 1 … `count`, or 2^31 − 1 if `count` is 0; a size_t */
    OPTION_SIZES,  /* `count` numbers of 1 … 2^31 − 1 with commas between; as many size_t */
    OPTION_WHOLE,  /* 0 … 2^64 − 1; an option_whole */
    OPTION_LIMITS, /* `count` numbers of −1 … 2^31 − 1 with commas between; an option_limits */
    OPTION_LIST,   /* any text but the empty one, up to OPTION_LIST_LIMIT times; an option_list */
    OPTION_CHOICE  /* one of `choices`; an int32_t: its index */
} option_kind;

typedef struct option_float {
    bool given;
    float value;
} option_float;

typedef struct option_whole {
    bool given;
    uint64_t value;
} option_whole;

typedef struct option_limits {
    bool given;
    int64_t value[2]; /* `count` of them */
} option_limits;

#define OPTION_LIST_LIMIT 8
typedef struct option_list {
    size_t count;
    const char *item[OPTION_LIST_LIMIT]; /* pointers into argv */
} option_list;

typedef struct option_row {
    const char *name; /* with its dashes */
    option_kind kind;
    size_t offset;     /* of the field in the command's struct */
    const char *value; /* the name of the value in --help; NULL for a flag */
    const char *help;  /* NULL: not shown */
    bool required;
    size_t count;               /* OPTION_COUNT, OPTION_SIZES, OPTION_LIMITS */
    const char *const *choices; /* OPTION_CHOICE: ended by NULL */
} option_row;

typedef struct option_table {
    const char *command;    /* "attention", "bench matmul" */
    const char *summary;    /* one line */
    const char *operands;   /* their names in --help and errors, or NULL */
    size_t operand_offset;  /* of a const char *[operand_count] field */
    size_t operand_least;   /* the fewest operands that are taken */
    size_t operand_count;   /* the most */
    const option_row *rows; /* ended by a NULL name */
} option_table;

/* Fills `fields` (zeroed by the caller, save for defaults that differ from zero) from the arguments.  TOOL_HELPED if
 * --help was among them and has been answered. */
int options_parse(const option_table *table, int argc, char **argv, void *fields);

/* Parses the arguments of a command that takes any number of operands to *fields, which the caller frees: `bytes` is their size,
 * and they end with `const char *operands[]`; a NULL follows the last. */
int options_make(option_table table, size_t bytes, int argc, char **argv, void **fields);

/* Does so and runs the command. */
int options_run(option_table table, size_t bytes, int argc, char **argv, int (*run)(const void *fields));

/* Reads one option's value into its field of `fields`; complains about a wrong one. */
int option_store(const option_table *table, const option_row *row, const char *text, void *fields);

/* A finite decimal number that float32 can hold. */
bool option_parse_float(const char *text, float *value);

/* Rows that several commands share. */
#define OPTION_ROW_DEVICE(type) \
    {"--device", OPTION_TEXT, offsetof(type, device), "SPEC", \
     .help = "gpu, cpu, pocl, an index from 'clattn devices', or PLATFORM:DEVICE substrings"}
#define OPTION_ROW_RANKS_DEVICES(type) \
    {"--device", OPTION_TEXT, offsetof(type, device), "SPEC", \
     .help = "gpu, cpu, pocl, an index from 'clattn devices', or PLATFORM:DEVICE substrings; several with commas " \
             "between, as 0,1, are for mpirun's ranks in turn"}
#define OPTION_ROW_DEVICES(type, what) \
    {"--device", OPTION_TEXT, offsetof(type, device), "SPEC", \
     .help = "gpu, cpu, pocl, an index from 'clattn devices', or PLATFORM:DEVICE substrings; several indices, as " \
             "0,1, are " \
             "devices that share the " what}
#define OPTION_ROW_SOLVER(type) {"--solver", OPTION_TEXT, offsetof(type, solver), "NAME", .help = "this solver or none"}
#define OPTION_ROW_REPEAT(type) {"--repeat", OPTION_COUNT, offsetof(type, repeat), "N", .help = "time N runs"}
#define OPTION_ROW_VERIFY(type) \
    {"--verify", OPTION_FLAG, offsetof(type, verify), .help = "compare with a double-precision reference on the host"}
#define OPTION_ROW_JSON(type) \
    {"--json", OPTION_FLAG, offsetof(type, json), .help = "report as one line of JSON, last on stdout"}
#define OPTION_ROW_CAUSAL(type) \
    {"--causal", OPTION_FLAG, offsetof(type, causal), .help = "query i attends keys up to its own position"}
#define OPTION_ROW_SHORT_MASK(type) \
    {"--short-mask", OPTION_FLAG, offsetof(type, short_mask), \
     .help = "the mask may end before the keys do, and keys beyond it are not attended"}
#define OPTION_ROW_ALIGN(type) \
    {"--align", \
     OPTION_CHOICE, \
     offsetof(type, align), \
     "WHERE", \
     .help = "where query 0 stands: top-left (key 0, default) or bottom-right (the last query at the last key)", \
     .choices = option_align_choices}
#define OPTION_ROW_DTYPE(type, of_what) \
    {"--dtype", \
     OPTION_CHOICE, \
     offsetof(type, dtype), \
     "TYPE", \
     .help = of_what ": f32 (default), f16 or bf16", \
     .choices = option_dtype_choices}
#define OPTION_ROW_END {.name = NULL}

/* The choices of --align, in the order of clattn_alignment's first two values. */
extern const char *const option_align_choices[];

/* The types that --dtype chooses from, and its choices; NULL at the end. */
extern const clattn_dtype option_dtypes[];
extern const char *const option_dtype_choices[];

#endif
