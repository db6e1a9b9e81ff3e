/* libpng reports errors by long jumps.  Everything that must survive one lies in a struct that outlives the jump,
 * and setjmp stands in functions that do nothing else. */
#include "tool/cli/png_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/strbuf.h"
#include "io/os_file.h"
#include "tool/cli/os_tool.h"
#include "tool/tool.h"

#define MOST_SIDE 1048575
#define SIGNATURE 8           /* bytes at the start of every PNG file */
#define MOST_CHUNK (16 << 20) /* most bytes of one chunk that is stored, such as a colour profile */

/* A libpng reader, which owns the chunks in its info. */
struct png_chunks {
    png_structp png;
    png_infop info;
};

typedef struct work {
    jmp_buf failed;
    char message[128];
    bool no_memory; /* what failed was an allocation of ours */
    png_structp png;
    png_infop info;
    FILE *file;
    picture *picture;
    png_bytep *rows;
    struct strbuf out;
} work;

static void on_error(png_structp png, png_const_charp message)
{
    work *w = png_get_error_ptr(png);
    snprintf(w->message, sizeof w->message, "%s", message);
    longjmp(w->failed, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void fail(work *w, const char *message)
{
    png_error(w->png, message);
}

static void fail_memory(work *w, const char *message)
{
    w->no_memory = true;
    fail(w, message);
}

/* Allocates the picture's pixels, which stay untouched until a row is read: a header alone costs no memory.
 */
static void allocate(work *w)
{
    picture *p = w->picture;
    p->width = png_get_image_width(w->png, w->info);
    p->height = png_get_image_height(w->png, w->info);
    if (p->width > PICTURE_PIXELS / p->height)
        fail(w, "more than 2^27 pixels");
    p->channels = png_get_channels(w->png, w->info);
    p->bits = png_get_bit_depth(w->png, w->info);
    if (picture_row(p) != png_get_rowbytes(w->png, w->info))
        fail(w, "rows of an unexpected size");
    p->pixels = calloc(p->height, picture_row(p));
    w->rows = malloc(p->height * sizeof *w->rows);
    if (p->pixels == NULL || w->rows == NULL)
        fail_memory(w, "no memory for its pixels");
    for (size_t y = 0; y < p->height; y++)
        w->rows[y] = p->pixels + y * picture_row(p);
}

static bool read_picture(work *w)
{
    const uint16_t one = 1;
    if (setjmp(w->failed))
        return false;
    w->info = png_create_info_struct(w->png);
    if (w->info == NULL)
        fail_memory(w, "no memory for its header");
    png_set_user_limits(w->png, MOST_SIDE, MOST_SIDE);
    png_set_chunk_malloc_max(w->png, MOST_CHUNK);
    png_set_chunk_cache_max(w->png, 64);
    png_init_io(w->png, w->file);
    png_set_sig_bytes(w->png, SIGNATURE);
    png_read_info(w->png, w->info);
    png_set_expand(w->png);
    if (png_get_bit_depth(w->png, w->info) == 16 && *(const unsigned char *)&one == 1)
        png_set_swap(w->png);
    png_set_interlace_handling(w->png);
    png_read_update_info(w->png, w->info);
    allocate(w);
    png_read_image(w->png, w->rows);
    png_read_end(w->png, NULL);
    return true;
}

/* Reads the first bytes; returns what the file is instead of a PNG, or NULL.  libpng would only say "Read Error". */
static const char *other_than_png(FILE *file, const char *path)
{
    png_byte first[SIGNATURE];
    if (os_look_at(path) == OS_PATH_FOLDER)
        return "is a folder";
    size_t length = fread(first, 1, SIGNATURE, file);
    if (length == 0 && !ferror(file))
        return "has 0 bytes";
    if (length < SIGNATURE)
        return ferror(file) ? "cannot be read" : "has fewer than 8 bytes";
    return png_sig_cmp(first, 0, SIGNATURE) != 0 ? "does not begin as PNG files do" : NULL;
}

int picture_read(const char *path, picture *result, char *message, size_t bytes)
{
    work w = {.picture = result};
    *result = (picture){0};
    w.file = os_open_for_reading(path);
    if (w.file == NULL) {
        snprintf(message, bytes, "%s: cannot be opened: %s", path, strerror(errno));
        return TOOL_BAD_INPUT;
    }
    const char *found = other_than_png(w.file, path);
    if (found != NULL) {
        fclose(w.file);
        snprintf(message, bytes, "%s: %s, expected a PNG file", path, found);
        return TOOL_BAD_INPUT;
    }
    result->chunks = calloc(1, sizeof *result->chunks);
    w.png = result->chunks ? png_create_read_struct(PNG_LIBPNG_VER_STRING, &w, on_error, on_warning) : NULL;
    bool read = w.png != NULL && read_picture(&w);
    if (!read && feof(w.file))
        snprintf(w.message, sizeof w.message, "ends before the picture does");
    free(w.rows);
    fclose(w.file);
    if (result->chunks != NULL) {
        result->chunks->png = w.png;
        result->chunks->info = w.info;
    }
    if (read)
        return TOOL_DONE;
    picture_release(result);
    const bool no_memory = w.png == NULL || w.no_memory;
    snprintf(message, bytes, "%s: %s%s", path, w.png ? w.message : "no memory to read it",
             no_memory ? "" : ", expected a whole PNG file");
    return no_memory ? TOOL_FAILED : TOOL_BAD_INPUT;
}

int picture_load(const char *path, picture *result)
{
    char message[4608]; /* a path has at most 4096 bytes */
    int status = picture_read(path, result, message, sizeof message);
    return status == TOOL_DONE ? status : complain(status, "%s", message);
}

void picture_release(picture *p)
{
    if (p->chunks != NULL && p->chunks->png != NULL)
        png_destroy_read_struct(&p->chunks->png, &p->chunks->info, NULL);
    free(p->chunks);
    free(p->pixels);
    *p = (picture){0};
}

static void append(png_structp png, png_bytep data, png_size_t bytes)
{
    struct strbuf *out = png_get_io_ptr(png);
    strbuf_append(out, (const char *)data, bytes);
    if (out->failed)
        png_error(png, "no memory for the file");
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

/* Copies the chunks that say what the pixels mean: gamma, primaries, intent, profile, resolution. */
static void copy_chunks(work *w, const struct png_chunks *from)
{
    png_structp in = from->png;
    png_infop info = from->info;
    double gamma, c[8];
    int number, compression;
    png_uint_32 x, y, bytes;
    png_charp name;
    png_bytep profile;
    if (png_get_gAMA(in, info, &gamma))
        png_set_gAMA(w->png, w->info, gamma);
    if (png_get_cHRM(in, info, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7]))
        png_set_cHRM(w->png, w->info, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]);
    if (png_get_sRGB(in, info, &number))
        png_set_sRGB(w->png, w->info, number);
    else if (png_get_iCCP(in, info, &name, &compression, &profile, &bytes))
        png_set_iCCP(w->png, w->info, name, compression, profile, bytes);
    if (png_get_pHYs(in, info, &x, &y, &number))
        png_set_pHYs(w->png, w->info, x, y, number);
}

static bool write_picture(work *w)
{
    static const int types[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                PNG_COLOR_TYPE_RGB_ALPHA};
    const picture *p = w->picture;
    const uint16_t one = 1;
    if (setjmp(w->failed))
        return false;
    w->info = png_create_info_struct(w->png);
    if (w->info == NULL)
        fail(w, "no memory for its header");
    png_set_write_fn(w->png, &w->out, append, flush_nothing);
    png_set_user_limits(w->png, MOST_SIDE, MOST_SIDE);
    png_set_IHDR(w->png, w->info, (png_uint_32)p->width, (png_uint_32)p->height, p->bits, types[p->channels],
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (p->chunks != NULL)
        copy_chunks(w, p->chunks);
    png_write_info(w->png, w->info);
    if (p->bits == 16 && *(const unsigned char *)&one == 1)
        png_set_swap(w->png);
    for (size_t y = 0; y < p->height; y++)
        png_write_row(w->png, p->pixels + y * picture_row(p));
    png_write_end(w->png, w->info);
    return true;
}

int picture_store(const char *path, const picture *p)
{
    work w = {.picture = (picture *)(uintptr_t)p};
    clattn_io_error error;
    int status = TOOL_DONE;
    w.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w, on_error, on_warning);
    if (w.png == NULL || !write_picture(&w))
        status = complain(TOOL_FAILED, "%s: %s", path, w.png ? w.message : "no memory to write it");
    os_part part = {w.out.text, w.out.length};
    if (status == TOOL_DONE && os_file_replace(path, &part, 1, &error) != CLATTN_SUCCESS)
        status = complain(TOOL_FAILED, "%s", error.message);
    if (w.png != NULL)
        png_destroy_write_struct(&w.png, &w.info);
    strbuf_clear(&w.out);
    return status;
}
