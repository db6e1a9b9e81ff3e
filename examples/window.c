/* A window that cleans a picture and finds its like in a folder, with a live progress bar and a cancel button.
 *
 *   window MODEL.safetensors PICTURE FOLDER CLEANED.png
 *
 * The model is facebook/dinov2-small's. The program owns the OpenCL context and queue, and clattn adopts them. GTK's thread
 * draws, asks the control for the progress, and cancels it; a worker does what takes long (pictures.c), compiling included.
 * CLEANED.png is written as a whole, or not at all if the user cancels. */
#include <stdatomic.h>

#include <gtk/gtk.h>

#include "pictures.h"

enum { THUMBNAIL = 256, TURN_MS = 40 };

struct program {
    char **words; /* of the command line */
    clattn_control *control;
    GtkWidget *window, *bar, *button, *image[3];
    char *step;                    /* what the bar says, without the percentage */
    _Atomic(char *) text;          /* what the worker says and the window takes; NULL: nothing new */
    _Atomic(GdkPixbuf *) shown[3]; /* what it shows, likewise */
    atomic_bool ended;
    int failed;
    guint turns; /* the timer that draws; 0: it has ended */
};

/* ---- the worker ---- */

static void say(struct program *p, char *text)
{
    g_free(atomic_exchange(&p->text, text));
}

/* Shows a small copy of a picture. */
static void show(struct program *p, int place, const GdkPixbuf *picture)
{
    const double width = gdk_pixbuf_get_width(picture), height = gdk_pixbuf_get_height(picture);
    const double scale = THUMBNAIL / MAX(width, height);
    GdkPixbuf *copy = gdk_pixbuf_scale_simple(picture, MAX(1, (int)(width * scale)), MAX(1, (int)(height * scale)),
                                              GDK_INTERP_BILINEAR);
    GdkPixbuf *before = atomic_exchange(&p->shown[place], copy);
    g_clear_object(&before);
}

/* Makes the program's context and queue, for the first device there is, and has clattn adopt them. */
static gboolean start(struct pictures *pictures, cl_context *opencl, GError **error)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    cl_platform_id platforms[16];
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(16, platforms, &count);
    for (cl_uint i = 0; i < MIN(count, 16) && !params.opencl_device; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &params.opencl_device, NULL) != CL_SUCCESS)
            params.opencl_device = NULL;
    if (params.opencl_device)
        params.opencl_context = *opencl = clCreateContext(NULL, 1, &params.opencl_device, NULL, NULL, &code);
    else
        code = CL_DEVICE_NOT_FOUND;
    if (code == CL_SUCCESS)
        params.queue = pictures->queue = clCreateCommandQueue(*opencl, params.opencl_device, 0, &code);
    return pictures_opencl_good(code, "making a queue for a device", error) &&
           pictures_good(NULL, clattn_context_create(&params, &pictures->context), error);
}

/* Finds the picture in the folder with the largest cosine, and returns a text about it; NULL if none is found. */
static char *search(struct program *p, struct pictures *pictures, const GdkPixbuf *picture, GError **error)
{
    float own[PICTURES_COLUMNS], other[PICTURES_COLUMNS];
    char *given = g_canonicalize_filename(p->words[2], NULL), *place = g_canonicalize_filename(p->words[3], NULL);
    char *like = NULL, *text = NULL;
    double best = 0;
    guint files = 0, compared = 0;
    GDir *folder = g_dir_open(place, 0, error);
    while (folder && g_dir_read_name(folder))
        files++;
    clattn_control_expect(p->control, 1 + files);
    say(p, g_strdup("Searching"));
    gboolean done = folder && pictures_vector(pictures, picture, own, error);
    if (done)
        g_dir_rewind(folder);
    for (const char *name; done && (name = g_dir_read_name(folder)) != NULL;) {
        char *path = g_build_filename(place, name, NULL);
        const gboolean another = g_file_test(path, G_FILE_TEST_IS_REGULAR) && !g_str_equal(path, given);
        GdkPixbuf *each = another ? pictures_load(path, NULL) : NULL; /* what is no picture is left out */
        if (each && (done = pictures_vector(pictures, each, other, error))) {
            double cosine = 0;
            for (int i = 0; i < PICTURES_COLUMNS; i++)
                cosine += (double)own[i] * other[i];
            if (compared++ == 0 || cosine > best) {
                best = cosine;
                g_free(like);
                like = g_filename_display_name(name);
                show(p, 2, each);
            }
        }
        g_clear_object(&each);
        g_free(path);
    }
    if (done && like)
        text = g_strdup_printf("Most alike of %u pictures: %s, cosine %.4f", compared, like, best);
    else if (done)
        g_set_error_literal(error, G_IO_ERROR, G_IO_ERROR_FAILED, "the folder has no other pictures");
    if (folder)
        g_dir_close(folder);
    g_free(given);
    g_free(place);
    g_free(like);
    return text;
}

static gboolean save(struct program *p, GdkPixbuf *picture, GError **error)
{
    gchar *bytes = NULL;
    gsize count;
    const gboolean saved = gdk_pixbuf_save_to_buffer(picture, &bytes, &count, "png", error, NULL) &&
                           !clattn_control_is_cancelled(p->control) &&
                           g_file_set_contents(p->words[4], bytes, (gssize)count, error);
    g_free(bytes);
    return saved;
}

/* Does everything, and returns the result as a text; NULL if it fails or is cancelled. */
static char *run(struct program *p, struct pictures *pictures, cl_context *opencl, GError **error)
{
    GdkPixbuf *picture = pictures_load(p->words[2], error);
    char *text = NULL;
    if (picture) {
        const size_t width = (size_t)gdk_pixbuf_get_width(picture), height = (size_t)gdk_pixbuf_get_height(picture);
        show(p, 0, picture);
        say(p, g_strdup("Compiling"));
        if (start(pictures, opencl, error) && pictures_open(pictures, p->words[1], width, height, error)) {
            say(p, g_strdup("Cleaning"));
            if (pictures_clean(pictures, picture, error)) {
                show(p, 1, picture);
                text = search(p, pictures, picture, error);
            }
        }
    }
    if (text && !save(p, picture, error))
        g_clear_pointer(&text, g_free);
    g_clear_object(&picture);
    return text;
}

static gpointer work(gpointer user)
{
    struct program *p = user;
    struct pictures pictures = {.control = p->control};
    cl_context opencl = NULL;
    GError *error = NULL;
    char *text = run(p, &pictures, &opencl, &error);
    pictures_close(&pictures);
    clattn_context_release(&pictures.context);
    if (pictures.queue)
        clReleaseCommandQueue(pictures.queue);
    if (opencl)
        clReleaseContext(opencl);
    const gboolean cancelled = !text && clattn_control_is_cancelled(p->control);
    p->failed = !text && !cancelled;
    say(p, text ? text : g_strdup(cancelled ? "Cancelled" : error ? error->message : "out of memory"));
    p->ended = TRUE;
    g_clear_error(&error);
    return NULL;
}

/* ---- the window ---- */

/* Draws what is new, several times a second. */
static gboolean refresh(gpointer user)
{
    struct program *p = user;
    GtkProgressBar *bar = GTK_PROGRESS_BAR(p->bar);
    const gboolean ended = p->ended; /* read before the text, which the worker says first */
    const double progress = clattn_control_progress(p->control);
    char *text = atomic_exchange(&p->text, NULL);
    for (int i = 0; i < 3; i++) {
        GdkPixbuf *shown = atomic_exchange(&p->shown[i], NULL);
        if (shown)
            gtk_image_set_from_pixbuf(GTK_IMAGE(p->image[i]), shown);
        g_clear_object(&shown);
    }
    if (text) {
        g_free(p->step);
        p->step = text;
    }
    text = progress > 0 && !ended ? g_strdup_printf("%s: %.0f %%", p->step, progress * 100) : g_strdup(p->step);
    gtk_progress_bar_set_text(bar, text);
    gtk_window_set_title(GTK_WINDOW(p->window), text);
    g_free(text);
    if (progress > 0)
        gtk_progress_bar_set_fraction(bar, progress);
    else
        gtk_progress_bar_pulse(bar); /* plans have no progress */
    if (ended) {
        if (!p->failed && !clattn_control_is_cancelled(p->control))
            gtk_progress_bar_set_fraction(bar, 1);
        gtk_button_set_label(GTK_BUTTON(p->button), "Close");
        gtk_widget_set_sensitive(p->button, TRUE);
    }
    if (ended)
        p->turns = 0;
    return ended ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

static void press(GtkButton *button, gpointer user)
{
    struct program *p = user;
    if (p->ended) {
        gtk_widget_destroy(p->window);
    } else {
        clattn_control_cancel(p->control);
        gtk_widget_set_sensitive(GTK_WIDGET(button), FALSE); /* until the worker has heard it */
    }
}

/* The window may be closed at any time, and is not drawn after that. */
static void leave(GtkWidget *window, gpointer user)
{
    struct program *p = user;
    (void)window;
    if (p->turns)
        g_source_remove(p->turns);
    p->turns = 0;
    gtk_main_quit();
}

static void build(struct program *p)
{
    GtkWidget *grid = gtk_grid_new();
    p->window = gtk_window_new(GTK_WINDOW_TOPLEVEL);
    p->bar = gtk_progress_bar_new();
    p->button = gtk_button_new_with_label("Cancel");
    gtk_grid_set_row_spacing(GTK_GRID(grid), 8);
    gtk_grid_set_column_spacing(GTK_GRID(grid), 8);
    gtk_container_set_border_width(GTK_CONTAINER(p->window), 8);
    gtk_progress_bar_set_show_text(GTK_PROGRESS_BAR(p->bar), TRUE);
    gtk_progress_bar_set_ellipsize(GTK_PROGRESS_BAR(p->bar), PANGO_ELLIPSIZE_END);
    for (int i = 0; i < 3; i++) {
        GtkWidget *caption = gtk_label_new((const char *const[]){"Given", "Cleaned", "Most alike"}[i]);
        p->image[i] = gtk_image_new();
        gtk_widget_set_size_request(p->image[i], THUMBNAIL, THUMBNAIL);
        gtk_grid_attach(GTK_GRID(grid), caption, i, 0, 1, 1);
        gtk_grid_attach(GTK_GRID(grid), p->image[i], i, 1, 1, 1);
    }
    gtk_grid_attach(GTK_GRID(grid), p->bar, 0, 2, 2, 1);
    gtk_grid_attach(GTK_GRID(grid), p->button, 2, 2, 1, 1);
    gtk_container_add(GTK_CONTAINER(p->window), grid);
    g_signal_connect(p->button, "clicked", G_CALLBACK(press), p);
    g_signal_connect(p->window, "destroy", G_CALLBACK(leave), p);
    gtk_widget_show_all(p->window);
}

int main(int argc, char **argv)
{
    struct program p = {.words = argv};
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    params.cancellable = 1;
    params.max_launch_ms = 10; /* the desktop stays alive, too, and the button is heard */
    if (argc != 5) {
        g_printerr("usage: window MODEL.safetensors PICTURE FOLDER CLEANED.png\n");
        return 2;
    }
    gtk_init(&argc, &argv);
    if (clattn_control_create(&params, &p.control) != CLATTN_SUCCESS) {
        g_printerr("window: no memory for a control\n");
        return 1;
    }
    p.step = g_strdup("Reading");
    build(&p);
    p.turns = g_timeout_add(TURN_MS, refresh, &p);
    GThread *worker = g_thread_new("worker", work, &p);
    gtk_main();
    clattn_control_cancel(p.control); /* if the window was closed early */
    g_thread_join(worker);
    clattn_control_release(&p.control);
    g_free(p.text);
    g_free(p.step);
    for (int i = 0; i < 3; i++)
        if (p.shown[i])
            g_object_unref(p.shown[i]);
    return p.failed;
}
