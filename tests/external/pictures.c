/* An application that has a picture in its memory and knows libclattn-pictures by pkg-config alone.  Exits with 0 if noise has
 * become less, and a model that is not there is told. */
#include <stdio.h>
#include <stdlib.h>

#include <clattn/pictures.h>

enum { HEIGHT = 16, WIDTH = 20 };

static int deviation(const unsigned char *pixels)
{
    int sum = 0;
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        sum += abs(pixels[i] - 100);
    return sum;
}

int main(void)
{
    unsigned char noisy[HEIGHT * WIDTH], clean[HEIGHT * WIDTH];
    clattn_context *context = NULL;
    clattn_denoiser *denoiser = NULL;
    clattn_upscaler *upscaler = NULL;
    clattn_denoiser_args args = CLATTN_DENOISER_ARGS_INIT;
    clattn_upscaler_params params = CLATTN_UPSCALER_PARAMS_INIT;
    clattn_io_error error = {""};
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        noisy[i] = (unsigned char)(90 + i * 37 % 21);
    args.from = clattn_picture_8bit(noisy, HEIGHT, WIDTH, 1);
    args.to = clattn_picture_8bit(clean, HEIGHT, WIDTH, 1);
    args.strength = 20;
    params.weights = "no model";
    if (clattn_context_create(NULL, &context) || clattn_denoiser_create(context, NULL, &denoiser, &error) ||
        clattn_denoiser_run(denoiser, NULL, &args, &error) ||
        clattn_upscaler_create(context, &params, &upscaler, &error) != CLATTN_ERROR_IO)
        return 1;
    puts(error.message);
    clattn_denoiser_release(&denoiser);
    clattn_context_release(&context);
    return deviation(clean) >= deviation(noisy) / 2;
}
