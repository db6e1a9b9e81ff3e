/* The table of a safetensors file, between the header's parser and the public calls. */
#ifndef CLATTN_IO_SAFETENSORS_H
#define CLATTN_IO_SAFETENSORS_H

#include "io/os_file.h"

/* One tensor.  Variable in length, so that 6,000 of them fit in the budget: after the struct come the
 * extents, none if `rank` is over CLATTN_MAX_RANK, then the name and the element type's spelling, each with
 * its NUL. */
typedef struct tensor_record {
    size_t begin; /* from the start of the data */
    size_t bytes;
    uint32_t record_bytes; /* of all of this; a multiple of a size_t's */
    uint16_t name_bytes;   /* with the NUL */
    uint8_t dtype;         /* clattn_dtype; NONE for a type that clattn lacks */
    uint8_t rank;          /* as the file has it */
    size_t extent[];
} tensor_record;

typedef struct tensor_table {
    tensor_record **index; /* `count` records in the byte order of their names */
    size_t count;
    char *records; /* one after the other, in the header's order */
    size_t bytes;  /* of them */
} tensor_table;

/* How many extents the record holds. */
size_t tensor_record_extents(const tensor_record *record);
const char *tensor_record_name(const tensor_record *record);
const char *tensor_record_dtype_name(const tensor_record *record);

/* Reads the header, bytes [8, 8 + header_bytes) of the file, into *table (zeroed before) and checks it
 * against the `data_bytes` that follow.  After a failure too the table must be released. */
clattn_status tensor_table_read(tensor_table *table, const os_file *file, size_t header_bytes, size_t data_bytes,
                                clattn_io_error *error);

void tensor_table_release(tensor_table *table);

#endif
