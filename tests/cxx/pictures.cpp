// The handles of pictures: what they give, and what they throw.
#define CLATTN_HPP_ENABLE_EXCEPTIONS
#include <clattn/pictures.hpp>

#include "check.hpp"
#include "throws.hpp"

namespace
{

void a_flat_picture_stays_as_it_is()
{
    clattn::context context;
    context.create();
    std::vector<unsigned char> noisy(5 * 7, 90), clean(noisy.size());
    clattn::denoiser_params params;
    clattn::denoiser_args args;
    clattn::denoiser made;
    params.patch = 3;
    params.radius = 1;
    made.create(context, params);
    clattn::denoiser denoiser = std::move(made);
    args.from = clattn_picture_8bit(noisy.data(), 5, 7, 1);
    args.to = clattn_picture_8bit(clean.data(), 5, 7, 1);
    denoiser.run(args, context.queue());
    CHECK(!made && clean == noisy);
    args.to.width = 6;
    CHECK(throws(CLATTN_ERROR_INVALID_ARGUMENT,
                 [&](clattn_io_error *told) { denoiser.run(args, context.queue(), told); }));
}

void models_that_are_not_there_are_told()
{
    clattn::context context;
    context.create();
    clattn::upscaler_params params;
    clattn::picture_encoder_params encoder_params;
    clattn::upscaler upscaler;
    clattn::picture_encoder encoder;
    params.weights = encoder_params.weights = "no such file";
    CHECK(throws(CLATTN_ERROR_IO, [&](clattn_io_error *told) { upscaler.create(context, params, told); }));
    CHECK(throws(CLATTN_ERROR_IO, [&](clattn_io_error *told) { encoder.create(context, encoder_params, told); }));
    CHECK(upscaler.factor() == 0 && encoder.size() == 0);
    CHECK(throws(CLATTN_ERROR_INVALID_ARGUMENT,
                 [&](clattn_io_error *told) { upscaler.run(clattn::upscaler_args(), nullptr, told); }));
    CHECK(throws(CLATTN_ERROR_INVALID_ARGUMENT,
                 [&](clattn_io_error *told) { encoder.run(clattn::picture_encoder_args(), nullptr, told); }));
}

} // namespace

std::vector<test> pictures_tests()
{
    return {{"a_flat_picture_stays_as_it_is", a_flat_picture_stays_as_it_is},
            {"models_that_are_not_there_are_told", models_that_are_not_there_are_told}};
}
