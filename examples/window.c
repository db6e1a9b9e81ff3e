/* A window that cleans a picture and finds its like in a folder, with a live progress bar and a cancel button.
 *
 *   window MODEL.safetensors PICTURE FOLDER CLEANED.png
 *
 * The model is facebook/dinov2-small's. The program owns the OpenCL context, and clattn adopts it. A worker makes the calls
 * that take long; GTK's thread draws, asks their control for the progress, and cancels it. */
#include <stdatomic.h>

#include <gtk/gtk.h>

#include <clattn/pictures.h>

enum { EDGE = 256, TURN_MS = 40, COLUMNS = 384 /* of DINOv2 small's vectors */ };

static clattn_control *control; /* of all calls */
static const char *model, *cleaned_path;
static const char *path[3];            /* of the pictures that are shown */
static char *like;                     /* the last of them */
static atomic_int ready;               /* how many of them there are */
static atomic_int files = 1, compared; /* of the folder; files 1: the progress is the control\'s */
static _Atomic(const char *) step;     /* what the worker does; NULL: it has ended, and says: */
static char result[600];
static gboolean failed;

static GtkWidget *window, *bar, *button, *image[3];

/* ---- the worker ---- */

/* Keeps what is wrong as the result. */
static gboolean check(gboolean good, const char *what)
{
    failed = !good && !clattn_control_is_cancelled(control);
    if (!good)
        g_strlcpy(result, failed ? what : "Cancelled", sizeof result);
    return good;
}

static GdkPixbuf *load(const char *name, clattn_picture *pixels)
{
    GdkPixbuf *picture = gdk_pixbuf_new_from_file(name, NULL);
    if (picture)
        *pixels = (clattn_picture){.pixels = gdk_pixbuf_get_pixels(picture),
                                   .height = (size_t)gdk_pixbuf_get_height(picture),
                                   .width = (size_t)gdk_pixbuf_get_width(picture),
                                   .row_bytes = (size_t)gdk_pixbuf_get_rowstride(picture),
                                   .components = gdk_pixbuf_get_n_channels(picture)};
    return picture;
}

static gboolean clean(clattn_context *context)
{
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_denoiser *denoiser = NULL;
    clattn_io_error error = {""};
    GdkPixbuf *noisy = load(path[0], &args.from), *cleaned = load(path[0], &args.to);
    args.strength = 20;
    args.control = control;
    gboolean good = check(noisy && cleaned, "the picture cannot be read") &&
                    check(!clattn_denoiser_create(context, NULL, &denoiser, &error), error.message) &&
                    check(!clattn_denoiser_run(denoiser, NULL, &args, &error), error.message) &&
                    check(gdk_pixbuf_save(cleaned, cleaned_path, "png", NULL, NULL), "the result cannot be written");
    clattn_denoiser_release(&denoiser);
    g_clear_object(&noisy);
    g_clear_object(&cleaned);
    return good;
}

/* Makes a picture's vector; what is no picture has none, and *good stays. */
static gboolean encode(clattn_picture_encoder *encoder, const char *name, float *vector, gboolean *good)
{
    clattn_picture_encoder_args args = CLATTN_PICTURE_ENCODER_ARGS_INIT;
    clattn_io_error error = {""};
    GdkPixbuf *picture = load(name, &args.picture);
    args.vector = vector;
    args.control = control;
    if (picture)
        *good = check(!clattn_picture_encoder_run(encoder, NULL, &args, &error), error.message);
    gboolean made = picture && *good;
    g_clear_object(&picture);
    return made;
}

/* The more alike two pictures are, the larger is the product of their vectors. */
static void search(clattn_picture_encoder *encoder, const char *folder)
{
    float own[COLUMNS], other[COLUMNS], best = -2;
    GDir *names = g_dir_open(folder, 0, NULL);
    while (names && g_dir_read_name(names))
        files++;
    gboolean good = check(names != NULL, "the folder cannot be read");
    if (!encode(encoder, cleaned_path, own, &good) && good)
        good = check(FALSE, "the cleaned picture cannot be read");
    if (names)
        g_dir_rewind(names);
    for (const char *name; good && (name = g_dir_read_name(names)) != NULL;) {
        char *each = g_build_filename(folder, name, NULL);
        if (strcmp(each, path[0]) != 0 && encode(encoder, each, other, &good)) {
            float cosine = 0;
            for (int i = 0; i < COLUMNS; i++)
                cosine += own[i] * other[i];
            compared++;
            if (cosine > best) {
                best = cosine;
                g_free(like);
                path[2] = like = g_strdup(each);
            }
        }
        g_free(each);
    }
    if (good && check(compared > 0, "the folder has no other pictures")) {
        g_snprintf(result, sizeof result, "Most alike of %d pictures: %s, cosine %.4f", compared, like, (double)best);
        ready = 3;
    }
    g_clear_pointer(&names, g_dir_close);
}

static gpointer work(gpointer folder)
{
    clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_picture_encoder_params encoder_params = CLATTN_PICTURE_ENCODER_PARAMS_INIT;
    clattn_context *context = NULL;
    clattn_picture_encoder *encoder = NULL;
    clattn_io_error error = {"no OpenCL device"};
    encoder_params.model = CLATTN_VISION_DINOV2_SMALL_14;
    encoder_params.weights = model;
    cl_device_id devices[16];
    params.opencl_context = clCreateContextFromType(NULL, CL_DEVICE_TYPE_ALL, NULL, NULL, NULL); /* the program's own */
    if (params.opencl_context &&
        !clGetContextInfo(params.opencl_context, CL_CONTEXT_DEVICES, sizeof devices, devices, NULL))
        params.opencl_device = devices[0];
    if (params.opencl_device && clattn_context_create(&params, &context))
        clattn_context_message(NULL, error.message, sizeof error.message);
    if (check(context != NULL, error.message) && clean(context)) {
        path[1] = cleaned_path;
        ready = 2;
        step = "Loading the model";
        if (check(!clattn_picture_encoder_create(context, &encoder_params, &encoder, &error), error.message)) {
            step = "Searching";
            search(encoder, folder);
        }
    }
    clattn_picture_encoder_release(&encoder);
    clattn_context_release(&context);
    if (params.opencl_context)
        clReleaseContext(params.opencl_context);
    step = NULL;
    return NULL;
}

/* ---- the window ---- */

/* Draws what is new, several times a second. */
static gboolean refresh(gpointer user)
{
    static int shown;
    const char *doing = step;
    const double progress = !doing ? 1 : files > 1 ? (double)compared / files : clattn_control_progress(control);
    for (; shown < ready; shown++) {
        GdkPixbuf *small = gdk_pixbuf_new_from_file_at_size(path[shown], EDGE, EDGE, NULL);
        gtk_image_set_from_pixbuf(GTK_IMAGE(image[shown]), small);
        g_clear_object(&small);
    }
    char *text =
        progress < 1 ? g_strdup_printf("%s: %.0f %%", doing, progress * 100) : g_strdup(doing ? doing : result);
    gtk_progress_bar_set_fraction(GTK_PROGRESS_BAR(bar), progress);
    gtk_progress_bar_set_text(GTK_PROGRESS_BAR(bar), text);
    gtk_window_set_title(GTK_WINDOW(window), text);
    g_free(text);
    (void)user;
    if (doing)
        return G_SOURCE_CONTINUE;
    gtk_button_set_label(GTK_BUTTON(button), "Close");
    if (!gtk_widget_get_visible(window)) /* it was closed meanwhile */
        gtk_main_quit();
    return G_SOURCE_REMOVE;
}

static void press(void)
{
    clattn_control_cancel(control);
    if (!step)
        gtk_main_quit();
}

static gboolean leave(void)
{
    gtk_widget_hide(window);
    press();
    return TRUE;
}

int main(int argc, char **argv)
{
    static const char *const captions[] = {"Given", "Cleaned", "Most alike"};
    clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
    params.cancellable = 1;
    params.max_launch_ms = 10; /* the desktop stays alive, too, and the button is heard */
    if (argc != 5 || clattn_control_create(&params, &control)) {
        g_printerr("usage: window MODEL.safetensors PICTURE FOLDER CLEANED.png\n");
        return 2;
    }
    gtk_init(NULL, NULL);
    window = gtk_window_new(GTK_WINDOW_TOPLEVEL);
    bar = gtk_progress_bar_new();
    button = gtk_button_new_with_label("Cancel");
    GtkWidget *grid = gtk_grid_new();
    for (int i = 0; i < 3; i++) {
        image[i] = gtk_image_new();
        gtk_widget_set_size_request(image[i], EDGE, EDGE);
        gtk_grid_attach(GTK_GRID(grid), gtk_label_new(captions[i]), i, 0, 1, 1);
        gtk_grid_attach(GTK_GRID(grid), image[i], i, 1, 1, 1);
    }
    gtk_grid_attach(GTK_GRID(grid), bar, 0, 2, 2, 1);
    gtk_grid_attach(GTK_GRID(grid), button, 2, 2, 1, 1);
    gtk_container_add(GTK_CONTAINER(window), grid);
    g_object_set(grid, "row-spacing", 8, "column-spacing", 8, "margin", 8, NULL);
    g_object_set(bar, "show-text", TRUE, "ellipsize", PANGO_ELLIPSIZE_END, NULL);
    g_signal_connect(button, "clicked", G_CALLBACK(press), NULL);
    g_signal_connect(window, "delete-event", G_CALLBACK(leave), NULL);
    gtk_widget_show_all(window);

    model = argv[1];
    path[0] = argv[2];
    cleaned_path = argv[4];
    ready = 1;
    step = "Cleaning";
    g_timeout_add(TURN_MS, refresh, NULL);
    GThread *worker = g_thread_new("worker", work, argv[3]);
    gtk_main();
    g_thread_join(worker);
    gtk_widget_destroy(window);
    clattn_control_release(&control);
    g_free(like);
    return failed;
}
