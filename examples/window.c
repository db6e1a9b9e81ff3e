/* A window that cleans a picture and finds its like among others, with a live progress bar and a cancel button:
 *
 *   window MODEL.safetensors PICTURE CLEANED.png OTHER ...
 *
 * The model is facebook/dinov2-small's. The program owns the OpenCL context, and clattn adopts it. A worker makes the calls that
 * take long; GTK's thread draws, asks their control for the progress, and cancels it. */
#include <stdatomic.h>
#include <gtk/gtk.h>
#include <clattn/pictures.h>

enum { MODEL = 1, PICTURE, CLEANED, OTHERS, EDGE = 256, COLUMNS = 384 /* of the model's vectors */ };

static clattn_control *control; /* of all calls */
static clattn_context *context;
static clattn_denoiser *denoiser;
static clattn_picture_encoder *encoder;
static clattn_io_error error; /* the worker's */
static GdkPixbuf *noisy, *clean, *other;
static GtkWidget *window, *bar, *image[3];
static _Atomic(const char *) shown[3], text = "Cleaning"; /* in the window: files, and its title */
static atomic_uint compared;                              /* files; 0: the progress is the control's */

/* Unless all is good, this is the end of the worker. */
static void check(gboolean good, const char *wrong)
{
    if (good)
        return;
    text = wrong;
    g_thread_exit(NULL);
}

/* Loads a picture in the place of the last. */
static clattn_picture load(GdkPixbuf **p, const char *file)
{
    g_clear_object(p);
    *p = gdk_pixbuf_new_from_file(file, NULL);
    check(*p != NULL, *p ? NULL : g_strconcat("Cannot read ", file, NULL));
    return (clattn_picture){gdk_pixbuf_get_pixels(*p),        (size_t)gdk_pixbuf_get_height(*p),
                            (size_t)gdk_pixbuf_get_width(*p), (size_t)gdk_pixbuf_get_rowstride(*p),
                            gdk_pixbuf_get_n_channels(*p),    CLATTN_COMPONENT_U8};
}

static gpointer work(gpointer arguments)
{
    char **argv = arguments;
    clattn_denoiser_args args = {sizeof args, load(&noisy, argv[PICTURE]), load(&clean, argv[PICTURE]), 20, control};
    check(!clattn_denoiser_create(context, NULL, &denoiser, &error), error.message);
    check(!clattn_denoiser_run(denoiser, NULL, &args, &error), error.message);
    check(gdk_pixbuf_save(clean, argv[CLEANED], "png", NULL, NULL), "The result cannot be written");
    shown[1] = argv[CLEANED];

    text = "Loading the model";
    clattn_picture_encoder_params params = {sizeof params, CLATTN_VISION_DINOV2_SMALL_14, argv[MODEL], 0};
    check(!clattn_picture_encoder_create(context, &params, &encoder, &error), error.message);
    text = "Searching";
    float own[COLUMNS], vector[COLUMNS], best = -2;
    for (compared = 1; argv[PICTURE + compared]; compared++) {
        const char *file = argv[PICTURE + compared]; /* the first is the cleaned one */
        clattn_picture_encoder_args each = {sizeof each, load(&other, file), compared > 1 ? vector : own, control};
        check(!clattn_picture_encoder_run(encoder, NULL, &each, &error), error.message);
        float cosine = compared > 1 ? 0 : best; /* of the angle between the vectors, whose lengths are 1 */
        for (int i = 0; compared > 1 && i < COLUMNS; i++)
            cosine += own[i] * vector[i];
        if (cosine > best && strcmp(file, argv[PICTURE]) != 0)
            best = cosine, shown[2] = file;
    }
    check(best > -2, "There are no other pictures");
    text = g_strdup_printf("Most alike: %s, cosine %.4f", shown[2], (double)best);
    return arguments; /* not NULL: all went well */
}

/* Shows what is new, several times a second. */
static gboolean refresh(gpointer files)
{
    static const char *drawn[3];
    double progress = compared ? (double)compared / g_strv_length(files) : clattn_control_progress(control);
    g_autofree char *title = g_strdup_printf("%s (%.0f %%)", text, progress * 100);
    gtk_window_set_title(GTK_WINDOW(window), title);
    gtk_progress_bar_set_fraction(GTK_PROGRESS_BAR(bar), progress);
    for (int i = 0; i < 3; i++)
        if (drawn[i] != shown[i]) {
            g_autoptr(GdkPixbuf) small = gdk_pixbuf_new_from_file_at_size(drawn[i] = shown[i], EDGE, EDGE, NULL);
            gtk_image_set_from_pixbuf(GTK_IMAGE(image[i]), small);
        }
    return G_SOURCE_CONTINUE;
}

int main(int argc, char **argv)
{
    clattn_context_params adopted = CLATTN_CONTEXT_PARAMS_INIT;
    clattn_control_params params = {sizeof params, .max_launch_ms = 10, .cancellable = 1};
    adopted.opencl_context = clCreateContextFromType(NULL, CL_DEVICE_TYPE_ALL, NULL, NULL, NULL);
    if (!gtk_init_check(&argc, &argv) || argc <= CLEANED || !adopted.opencl_context ||
        clattn_context_create(&adopted, &context) || clattn_control_create(&params, &control))
        return g_printerr("usage: window MODEL PICTURE CLEANED.png OTHER ... (by a display and OpenCL)\n"), 2;
    window = gtk_dialog_new_with_buttons(NULL, NULL, 0, "Cancel", GTK_RESPONSE_CANCEL, "Close", 0, NULL);
    GtkWidget *all = gtk_dialog_get_content_area(GTK_DIALOG(window)), *row = gtk_box_new(GTK_ORIENTATION_HORIZONTAL, 8);
    for (int i = 0; i < 3; i++)
        gtk_container_add(GTK_CONTAINER(row), image[i] = gtk_image_new());
    gtk_widget_set_size_request(row, 3 * EDGE, EDGE);
    gtk_container_add(GTK_CONTAINER(all), row);
    gtk_container_add(GTK_CONTAINER(all), bar = gtk_progress_bar_new());
    gtk_widget_show_all(window);

    shown[0] = argv[PICTURE];
    g_timeout_add(40, refresh, &argv[PICTURE]);
    GThread *worker = g_thread_new("worker", work, argv);
    for (int answer = GTK_RESPONSE_CANCEL; answer == GTK_RESPONSE_CANCEL; clattn_control_cancel(control))
        answer = gtk_dialog_run(GTK_DIALOG(window));
    gboolean found = g_thread_join(worker) != NULL;
    clattn_picture_encoder_release(&encoder);
    clattn_denoiser_release(&denoiser);
    clattn_control_release(&control);
    clattn_context_release(&context);
    clReleaseContext(adopted.opencl_context);
    return !found;
}
