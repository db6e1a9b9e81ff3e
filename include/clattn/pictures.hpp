/** @file
 * libclattn-pictures for C++11 and later, as clattn.hpp has the library and io.hpp its readers: what is said there holds here,
 * too, but for one thing: these objects do not keep their context alive.
 *
 *     clattn::denoiser denoiser;
 *     clattn::denoiser_args args;
 *     denoiser.create(context);
 *     args.from = clattn_picture_8bit(noisy, height, width, 4);
 *     args.to = clattn_picture_8bit(clean, height, width, 4);
 *     denoiser.run(args);
 */
#ifndef CLATTN_PICTURES_HPP
#define CLATTN_PICTURES_HPP

#include "io.hpp"
#include "pictures.h"

CLATTN_HPP_BEGIN

using denoiser_params = initialised<clattn_denoiser_params>;               /**< clattn_denoiser_create */
using denoiser_args = initialised<clattn_denoiser_args>;                   /**< clattn_denoiser_run */
using upscaler_params = initialised<clattn_upscaler_params>;               /**< clattn_upscaler_create */
using upscaler_args = initialised<clattn_upscaler_args>;                   /**< clattn_upscaler_run */
using picture_encoder_params = initialised<clattn_picture_encoder_params>; /**< clattn_picture_encoder_create */
using picture_encoder_args = initialised<clattn_picture_encoder_args>;     /**< clattn_picture_encoder_run */

namespace detail
{

/* Fills an owner by `create`, of a context. */
template <typename Object, void (*Release)(Object **), typename Params>
clattn_status make(owner<Object, Release> &owner, const context &context, const Params &params,
                   clattn_status (*create)(clattn_context *, const Params *, Object **, clattn_io_error *),
                   clattn_io_error *error)
{
    Object *made = nullptr;
    clattn_io_error told = {};
    clattn_status status = create(context.get(), &params, &made, &told);
    owner.reset(made);
    return checked_io(status, told, error);
}

/* Runs what an owner has. */
template <typename Object, typename Args>
clattn_status run(Object *object, const Args &args, cl_command_queue queue,
                  clattn_status (*run)(Object *, cl_command_queue, const Args *, clattn_io_error *),
                  clattn_io_error *error)
{
    clattn_io_error told = {};
    return checked_io(run(object, queue, &args, &told), told, error);
}

} // namespace detail

/** A #clattn_denoiser. */
class denoiser : public owner<clattn_denoiser, clattn_denoiser_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_denoiser_create. */
    clattn_status create(const context &context, const clattn_denoiser_params &params = denoiser_params(),
                         clattn_io_error *error = nullptr)
    {
        return detail::make(*this, context, params, clattn_denoiser_create, error);
    }

    /** clattn_denoiser_run. */
    clattn_status run(const clattn_denoiser_args &args, cl_command_queue queue = nullptr,
                      clattn_io_error *error = nullptr) const
    {
        return detail::run(get(), args, queue, clattn_denoiser_run, error);
    }
};

/** A #clattn_upscaler. */
class upscaler : public owner<clattn_upscaler, clattn_upscaler_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_upscaler_create. */
    clattn_status create(const context &context, const clattn_upscaler_params &params, clattn_io_error *error = nullptr)
    {
        return detail::make(*this, context, params, clattn_upscaler_create, error);
    }

    /** clattn_upscaler_factor. */
    size_t factor() const noexcept
    {
        return clattn_upscaler_factor(get());
    }

    /** clattn_upscaler_run. */
    clattn_status run(const clattn_upscaler_args &args, cl_command_queue queue = nullptr,
                      clattn_io_error *error = nullptr) const
    {
        return detail::run(get(), args, queue, clattn_upscaler_run, error);
    }
};

/** A #clattn_picture_encoder. */
class picture_encoder : public owner<clattn_picture_encoder, clattn_picture_encoder_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_picture_encoder_create. */
    clattn_status create(const context &context, const clattn_picture_encoder_params &params,
                         clattn_io_error *error = nullptr)
    {
        return detail::make(*this, context, params, clattn_picture_encoder_create, error);
    }

    /** clattn_picture_encoder_size. */
    size_t size() const noexcept
    {
        return clattn_picture_encoder_size(get());
    }

    /** clattn_picture_encoder_run. */
    clattn_status run(const clattn_picture_encoder_args &args, cl_command_queue queue = nullptr,
                      clattn_io_error *error = nullptr) const
    {
        return detail::run(get(), args, queue, clattn_picture_encoder_run, error);
    }
};

CLATTN_HPP_END

#endif
