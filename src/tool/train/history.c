#include "tool/train/history.h"

#include <math.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "io/os_file.h"
#include "tool/tool.h"

#define WIDTH 640.0 /* of the plot, within margins */
#define HEIGHT 320.0
#define MARGIN 48.0
#define POINTS 320 /* of the line of the steps; each is a mean */

bool train_curve_add(train_curve *curve, float value)
{
    if (curve->count == curve->capacity) {
        const size_t capacity = 2 * curve->capacity + 256;
        float *larger = realloc(curve->value, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        curve->value = larger;
        curve->capacity = capacity;
    }
    curve->value[curve->count++] = value;
    return true;
}

void train_history_release(train_history *history)
{
    free(history->losses.value);
    free(history->checks.value);
    *history = (train_history){0};
}

/* ---- the picture ---- */

typedef struct axes {
    double steps, low, high;
} axes;

static double across(const axes *a, double step)
{
    return MARGIN + WIDTH * step / a->steps;
}

static double down(const axes *a, double loss)
{
    return MARGIN / 2 + HEIGHT * (a->high - loss) / (a->high - a->low);
}

static axes axes_of(const train_history *h)
{
    axes a = {(double)h->losses.count, INFINITY, -INFINITY};
    for (size_t i = 0; i < h->losses.count; i++) {
        a.low = fmin(a.low, (double)h->losses.value[i]);
        a.high = fmax(a.high, (double)h->losses.value[i]);
    }
    for (size_t i = 1; i < h->checks.count; i += 2) {
        a.low = fmin(a.low, (double)h->checks.value[i]);
        a.high = fmax(a.high, (double)h->checks.value[i]);
    }
    a.low = floor(a.low);
    a.high = fmax(ceil(a.high), a.low + 1);
    return a;
}

static void draw_frame(struct strbuf *out, const axes *a)
{
    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" font-family=\"sans-serif\" "
                  "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  WIDTH + 2 * MARGIN, HEIGHT + 1.5 * MARGIN);
    const double apart = ceil((a->high - a->low) / 12);
    for (double loss = a->low; loss <= a->high; loss += apart)
        strbuf_printf(
            out, "<path d=\"M%g %.1fh%g\" stroke=\"#ddd\"/><text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
            MARGIN, down(a, loss), WIDTH, MARGIN - 6, down(a, loss) + 4, loss);
    for (int i = 0; i <= 4; i++)
        strbuf_printf(out, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.0f</text>\n",
                      across(a, a->steps * i / 4), HEIGHT + MARGIN, a->steps * i / 4);
    strbuf_printf(out,
                  "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">step</text>\n<text x=\"%g\" y=\"%g\" "
                  "text-anchor=\"end\">loss: <tspan fill=\"#1f77b4\">training</tspan>, <tspan "
                  "fill=\"#d62728\">validation</tspan></text>\n",
                  MARGIN + WIDTH / 2, HEIGHT + 1.4 * MARGIN, MARGIN + WIDTH, MARGIN / 2 + 14);
}

/* Each point of the line is the mean of the steps around it. */
static void draw_losses(struct strbuf *out, const axes *a, const train_curve *losses)
{
    const size_t width = (losses->count + POINTS - 1) / POINTS;
    strbuf_printf(out, "<polyline fill=\"none\" stroke=\"#1f77b4\" points=\"");
    for (size_t first = 0; first < losses->count; first += width) {
        double sum = 0;
        size_t count = 0;
        for (; count < width && first + count < losses->count; count++)
            sum += (double)losses->value[first + count];
        strbuf_printf(out, "%.1f,%.1f ", across(a, (double)first + 0.5 + (double)count / 2),
                      down(a, sum / (double)count));
    }
    strbuf_printf(out, "\"/>\n");
}

static void draw_checks(struct strbuf *out, const axes *a, const train_curve *checks)
{
    strbuf_printf(out, "<polyline fill=\"none\" stroke=\"#d62728\" points=\"");
    for (size_t i = 0; i + 1 < checks->count; i += 2)
        strbuf_printf(out, "%.1f,%.1f ", across(a, (double)checks->value[i]), down(a, (double)checks->value[i + 1]));
    strbuf_printf(out, "\"/>\n");
    for (size_t i = 0; i + 1 < checks->count; i += 2)
        strbuf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"#d62728\"/>\n",
                      across(a, (double)checks->value[i]), down(a, (double)checks->value[i + 1]));
}

int train_history_draw(const train_history *h, const char *path)
{
    struct strbuf out = {0};
    clattn_io_error error;
    int status = TOOL_DONE;
    if (h->losses.count == 0)
        return status;
    const axes a = axes_of(h);
    draw_frame(&out, &a);
    draw_losses(&out, &a, &h->losses);
    draw_checks(&out, &a, &h->checks);
    strbuf_printf(&out, "</svg>\n");
    const os_part part = {out.text, out.length};
    if (out.failed)
        status = complain(TOOL_FAILED, "%s: no memory for the picture", path);
    else if (os_file_replace(path, &part, 1, &error) != CLATTN_SUCCESS)
        status = complain(TOOL_FAILED, "%s", error.message);
    strbuf_clear(&out);
    return status;
}
