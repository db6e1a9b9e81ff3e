/** @file
 * The library for C++11 and later: owners of its objects, and its functions as their members. Header only.
 *
 * Every name is a C name with `::` for its first underscore: clattn_attention_desc becomes `clattn::attention_desc`, and
 * a clattn_plan belongs to a `clattn::plan`. What a call does, how long it blocks and what it returns is said at the C
 * function; here stands only what is different. A short program, of which examples/first.cpp is the whole:
 *
 *     clattn::context context;                              objects begin empty, and create fills them
 *     clattn::attention_desc desc;                          C structs that initialise themselves
 *     clattn::attention_args args;
 *     status = context.create();
 *     status = context.run(queue, desc, args);              the structs' types say which operator is meant
 *
 *     clattn::plan plan;
 *     status = plan.create(context, desc);
 *     status = plan.enqueue(queue, args, wait_list, &event);
 *
 * - Ownership: an object owns its handle; it can be moved and not copied. Its destructor, reset and another create
 *   release the handle by the C function. The member release gives the handle away instead, as std::unique_ptr's does.
 *   An empty object (new, moved from, or after a create that failed) stands for NULL in every call.
 * - Thread-safety: const members are as thread-safe as the C functions; what fills or empties an object is not.
 * - Failure: a member that can fail returns the C function's #clattn_status; the text is in clattn::context::message. If
 *   `CLATTN_HPP_ENABLE_EXCEPTIONS` is defined before the header is included, it throws a clattn::error with both instead.
 *   Neither exceptions nor RTTI have to be enabled. Members that return or fill a std::string may run out of memory,
 *   which is std::bad_alloc. No exception may leave a callback.
 * - OpenCL's objects may be C handles or objects of Khronos' `CL/opencl.hpp` (cl::Buffer, cl::CommandQueue, cl::Event, ...).
 *   That header is neither included nor needed. If both are used, include it first, so that it chooses the version of
 *   OpenCL that is declared.
 *
 * C functions that neither fail nor take a handle (clattn_layout_bhsd, clattn_status_string) are called as they are.
 * io.hpp has the file readers.
 */
#ifndef CLATTN_CLATTN_HPP
#define CLATTN_CLATTN_HPP

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "clattn.h"

/* What throws and what returns has different names for the linker, so that one program may have both. */
#ifdef CLATTN_HPP_ENABLE_EXCEPTIONS
#define CLATTN_HPP_KIND throwing
#else
#define CLATTN_HPP_KIND returning
#endif
#define CLATTN_HPP_BEGIN \
    namespace clattn \
    { \
    inline namespace CLATTN_HPP_KIND \
    {
#define CLATTN_HPP_END \
    } \
    }

CLATTN_HPP_BEGIN

/** A C struct that begins as its INIT macro says: its size, and zeros. */
template <typename Struct> struct initialised : Struct {
    initialised() : Struct()
    {
        this->size = sizeof(Struct);
    }
};

using activation_desc = initialised<clattn_activation_desc>;       /**< @ref calls */
using activation_args = initialised<clattn_activation_args>;       /**< @ref calls */
using adam_desc = initialised<clattn_adam_desc>;                   /**< @ref calls */
using adam_args = initialised<clattn_adam_args>;                   /**< @ref calls */
using attention_desc = initialised<clattn_attention_desc>;         /**< @ref calls */
using attention_args = initialised<clattn_attention_args>;         /**< @ref calls */
using conv2d_desc = initialised<clattn_conv2d_desc>;               /**< @ref calls */
using conv2d_args = initialised<clattn_conv2d_args>;               /**< @ref calls */
using cross_entropy_desc = initialised<clattn_cross_entropy_desc>; /**< @ref calls */
using cross_entropy_args = initialised<clattn_cross_entropy_args>; /**< @ref calls */
using dropout_desc = initialised<clattn_dropout_desc>;             /**< @ref calls */
using dropout_args = initialised<clattn_dropout_args>;             /**< @ref calls */
using embedding_desc = initialised<clattn_embedding_desc>;         /**< @ref calls */
using embedding_args = initialised<clattn_embedding_args>;         /**< @ref calls */
using feed_forward_desc = initialised<clattn_feed_forward_desc>;   /**< @ref calls */
using feed_forward_args = initialised<clattn_feed_forward_args>;   /**< @ref calls */
using image_desc = initialised<clattn_image_desc>;                 /**< @ref calls */
using image_args = initialised<clattn_image_args>;                 /**< @ref calls */
using kv_append_desc = initialised<clattn_kv_append_desc>;         /**< @ref calls */
using kv_append_args = initialised<clattn_kv_append_args>;         /**< @ref calls */
using matmul_desc = initialised<clattn_matmul_desc>;               /**< @ref calls */
using matmul_args = initialised<clattn_matmul_args>;               /**< @ref calls */
using merge_desc = initialised<clattn_merge_desc>;                 /**< @ref calls */
using merge_args = initialised<clattn_merge_args>;                 /**< @ref calls */
using mha_desc = initialised<clattn_mha_desc>;                     /**< @ref calls */
using mha_args = initialised<clattn_mha_args>;                     /**< @ref calls */
using neighbourhood_desc = initialised<clattn_neighbourhood_desc>; /**< @ref calls */
using neighbourhood_args = initialised<clattn_neighbourhood_args>; /**< @ref calls */
using norm_desc = initialised<clattn_norm_desc>;                   /**< @ref calls */
using norm_args = initialised<clattn_norm_args>;                   /**< @ref calls */
using pool_desc = initialised<clattn_pool_desc>;                   /**< @ref calls */
using pool_args = initialised<clattn_pool_args>;                   /**< @ref calls */
using resize_desc = initialised<clattn_resize_desc>;               /**< @ref calls */
using resize_args = initialised<clattn_resize_args>;               /**< @ref calls */
using rope_desc = initialised<clattn_rope_desc>;                   /**< @ref calls */
using rope_args = initialised<clattn_rope_args>;                   /**< @ref calls */
using softmax_desc = initialised<clattn_softmax_desc>;             /**< @ref calls */
using softmax_args = initialised<clattn_softmax_args>;             /**< @ref calls */
using context_params = initialised<clattn_context_params>;         /**< for clattn::context::create */
using device_info = initialised<clattn_device_info>;               /**< for clattn::context::info */
using program_statistics = initialised<clattn_program_statistics>; /**< for clattn::context::statistics */
using control_params = initialised<clattn_control_params>;         /**< for clattn::control::create */
using plan_options = initialised<clattn_plan_options>;             /**< for clattn::plan::create */
using plan_parameter = initialised<clattn_plan_parameter>;         /**< for clattn::plan::parameter */
using stack_desc = initialised<clattn_stack_desc>;                 /**< for `clattn::transformer_desc` */
using square_sum_desc = initialised<clattn_square_sum_desc>;       /**< @ref calls */
using square_sum_args = initialised<clattn_square_sum_args>;       /**< @ref calls */
using transformer_desc = initialised<clattn_transformer_desc>;     /**< for clattn::transformer::create */
using weight_source = initialised<clattn_weight_source>;           /**< for clattn::transformer::create */
using encoder_desc = initialised<clattn_encoder_desc>;             /**< for clattn::plan::create */
using encoder_args = initialised<clattn_encoder_args>;             /**< for clattn::plan::enqueue */
using training_desc = initialised<clattn_training_desc>;           /**< for clattn::plan::create */
using training_args = initialised<clattn_training_args>;           /**< for clattn::plan::enqueue */
using update_args = initialised<clattn_update_args>;               /**< for clattn::trainer::update */
using parameter = initialised<clattn_parameter>;                   /**< for clattn::trainer::get_parameter */
using decoder_desc = initialised<clattn_decoder_desc>;             /**< for clattn::plan::create */
using decoder_begin_args = initialised<clattn_decoder_begin_args>; /**< for clattn::decoder_state::begin */
using decoder_args = initialised<clattn_decoder_args>;             /**< for clattn::decoder_state::enqueue */
using generate_desc = initialised<clattn_generate_desc>;           /**< for clattn::decoder_state::generate */
using generated = initialised<clattn_generated>;                   /**< for clattn::decoder_state::generate */

using group = initialised<clattn_group>;                               /**< for clattn::group_attention::create */
using group_attention_desc = initialised<clattn_group_attention_desc>; /**< for clattn::group_attention::create */

#ifdef CLATTN_HPP_ENABLE_EXCEPTIONS
/** A call that failed. */
class error : public std::runtime_error
{
  public:
    /** Has `message`, or the status's own words if that is empty. */
    error(clattn_status status, const std::string &message)
        : std::runtime_error(message.empty() ? clattn_status_string(status) : message), status_(status)
    {
    }

    /** Returns what the C function returned. */
    clattn_status status() const noexcept
    {
        return status_;
    }

  private:
    clattn_status status_;
};
#endif

/** What the header keeps to itself. */
namespace detail
{

/* Reads a text by a C function that copies it and returns its length. */
template <typename Read> std::string text(Read read)
{
    std::string result(read(static_cast<char *>(nullptr), 0) + 1, '\0');
    result.resize(read(&result[0], result.size()));
    return result;
}

inline std::string message(const clattn_context *context)
{
    return text([=](char *buffer, size_t bytes) { return clattn_context_message(context, buffer, bytes); });
}

/* Returns `status`, or throws it with the message that `tell` returns. */
template <typename Tell> clattn_status checked_by(clattn_status status, Tell tell)
{
#ifdef CLATTN_HPP_ENABLE_EXCEPTIONS
    if (status != CLATTN_SUCCESS)
        throw error(status, tell());
#endif
    (void)tell;
    return status;
}

inline clattn_status checked(clattn_status status, const clattn_context *context)
{
    return checked_by(status, [=] { return message(context); });
}

/* The context of an object that was made of `context`; a context's is itself. */
template <typename Object> clattn_context *context_of(Object *, clattn_context *context)
{
    return context;
}

inline clattn_context *context_of(clattn_context *object, clattn_context *)
{
    return object;
}

/* The cl_event in an event's object, which is a cl_event itself or has a call operator that refers to one. */
template <typename Event>
typename std::enable_if<std::is_same<Event, cl_event>::value, const cl_event *>::type address(const Event &event)
{
    return &event;
}

template <typename Event> auto address(const Event &event) -> decltype(static_cast<const cl_event *>(&event()))
{
    return &event();
}

/* The calls of all operators as overloads: the type of a description or of arguments chooses. */
#define CLATTN_HPP_PLANNED(name, maker) \
    inline clattn_status plan_create(clattn_##maker *from, const clattn_##name##_desc *desc, \
                                     const clattn_plan_options *options, clattn_plan **plan) \
    { \
        return clattn_##name##_plan_create(from, desc, options, plan); \
    }
#define CLATTN_HPP_ENQUEUED(name) \
    inline clattn_status enqueue(clattn_plan *plan, cl_command_queue queue, const clattn_##name##_args *args, \
                                 cl_uint count, const cl_event *events, cl_event *event) \
    { \
        return clattn_##name##_enqueue(plan, queue, args, count, events, event); \
    }
#define CLATTN_HPP_OPERATOR(name) \
    CLATTN_HPP_PLANNED(name, context) \
    CLATTN_HPP_ENQUEUED(name) \
    inline clattn_status supports(clattn_context *context, const clattn_##name##_desc *desc, const char **reason) \
    { \
        return clattn_##name##_supports(context, desc, reason); \
    } \
    inline clattn_status prewarm(clattn_context *context, const clattn_##name##_desc *desc) \
    { \
        return clattn_##name##_prewarm(context, desc); \
    } \
    inline clattn_status run(clattn_context *context, cl_command_queue queue, const clattn_##name##_desc *desc, \
                             const clattn_##name##_args *args, cl_uint count, const cl_event *events, cl_event *event) \
    { \
        return clattn_##name##_run(context, queue, desc, args, count, events, event); \
    }
CLATTN_HPP_OPERATOR(activation)
CLATTN_HPP_OPERATOR(adam)
CLATTN_HPP_OPERATOR(attention)
CLATTN_HPP_OPERATOR(conv2d)
CLATTN_HPP_OPERATOR(cross_entropy)
CLATTN_HPP_OPERATOR(dropout)
CLATTN_HPP_OPERATOR(embedding)
CLATTN_HPP_OPERATOR(feed_forward)
CLATTN_HPP_OPERATOR(image)
CLATTN_HPP_OPERATOR(kv_append)
CLATTN_HPP_OPERATOR(matmul)
CLATTN_HPP_OPERATOR(merge)
CLATTN_HPP_OPERATOR(mha)
CLATTN_HPP_OPERATOR(neighbourhood)
CLATTN_HPP_OPERATOR(norm)
CLATTN_HPP_OPERATOR(pool)
CLATTN_HPP_OPERATOR(resize)
CLATTN_HPP_OPERATOR(rope)
CLATTN_HPP_OPERATOR(softmax)
CLATTN_HPP_OPERATOR(square_sum)
CLATTN_HPP_PLANNED(encoder, transformer)
CLATTN_HPP_PLANNED(training, trainer)
CLATTN_HPP_PLANNED(decoder, transformer)
CLATTN_HPP_ENQUEUED(encoder)
CLATTN_HPP_ENQUEUED(training)
#undef CLATTN_HPP_OPERATOR
#undef CLATTN_HPP_ENQUEUED
#undef CLATTN_HPP_PLANNED

} // namespace detail

/** An OpenCL handle that a call borrows: a C handle of type `Handle`, NULL, or an object of `CL/opencl.hpp` (or any
 * other whose call operator gives the C handle). */
template <typename Handle> class handle
{
  public:
    /** Borrows a C handle. */
    handle(Handle object = nullptr) : object_(object)
    {
    }

    /** Borrows what `object` holds. */
    template <typename Object, typename = typename std::enable_if<std::is_convertible<
                                   decltype(std::declval<const Object &>()()), Handle>::value>::type>
    handle(const Object &object) : object_(object())
    {
    }

    /** Gives the C handle. */
    operator Handle() const
    {
        return object_;
    }

  private:
    Handle object_;
};

/** The events that a call waits for: none (`{}` or NULL), one, those of a std::vector, or an array. They are borrowed for
 * the call, and each is a cl_event or a cl::Event. */
class wait_list
{
  public:
    /** None. */
    wait_list(std::nullptr_t = nullptr) : count_(0), events_(nullptr)
    {
    }

    /** The `count` ones at `events`. */
    wait_list(size_t count, const cl_event *events) : count_(static_cast<cl_uint>(count)), events_(events)
    {
    }

    /** One. */
    template <typename Event, typename = decltype(detail::address(std::declval<const Event &>()))>
    wait_list(const Event &event) : wait_list(1, detail::address(event))
    {
    }

    /** Those of a vector. */
    template <typename Event, typename Allocator, typename = decltype(detail::address(std::declval<const Event &>()))>
    wait_list(const std::vector<Event, Allocator> &events)
        : wait_list(events.size(), events.empty() ? nullptr : detail::address(events.front()))
    {
        static_assert(sizeof(Event) == sizeof(cl_event), "the events of a vector lie one behind the other");
    }

    /** Those of an array. */
    template <typename Event, size_t number, typename = decltype(detail::address(std::declval<const Event &>()))>
    wait_list(const Event (&events)[number]) : wait_list(number, detail::address(events[0]))
    {
        static_assert(sizeof(Event) == sizeof(cl_event), "the events of an array lie one behind the other");
    }

    /** Returns how many there are. */
    cl_uint count() const
    {
        return count_;
    }

    /** Returns the first of them; NULL if there are none. */
    const cl_event *events() const
    {
        return events_;
    }

  private:
    cl_uint count_;
    const cl_event *events_;
};

/** Where a call leaves the event of its work: nowhere, in a cl_event that the caller releases, or in a cl::Event, whose
 * former event is released. After a failure it has what it had. */
class event_target
{
  public:
    /** Nowhere. */
    event_target(std::nullptr_t = nullptr) : target_(nullptr), store_(nullptr)
    {
    }

    /** In *event; nowhere if that is NULL. */
    template <typename Event> event_target(Event *event) : target_(event), store_(store<Event>)
    {
    }

    /** Returns what `enqueue` returns, which gets a place for the event. */
    template <typename Enqueue> clattn_status of(Enqueue enqueue) const
    {
        cl_event event = nullptr;
        clattn_status status = enqueue(target_ ? &event : nullptr);
        if (event)
            store_(target_, event);
        return status;
    }

  private:
    template <typename Event> static void store(void *target, cl_event event)
    {
        *static_cast<Event *>(target) = Event(event);
    }

    void *target_;
    void (*store_)(void *target, cl_event event);
};

/** Owns a handle of type `Object`, which `Release` releases; empty, it holds NULL.
 *
 * Objects that were made of a context know it, for the messages of errors: their handles keep it alive. */
template <typename Object, void (*Release)(Object **)> class owner
{
  public:
    /** Takes over `object`, which may be NULL, and which was made of `context`; that is for messages only and may be
     * NULL. */
    explicit owner(Object *object = nullptr, clattn_context *context = nullptr) noexcept
        : object_(object), context_(object ? context : nullptr)
    {
    }

    /** Takes over what `other` holds, and leaves it empty. */
    owner(owner &&other) noexcept : object_(other.object_), context_(other.context_)
    {
        other.release();
    }

    /** Releases what it holds, takes over what `other` holds, and leaves that empty. */
    owner &operator=(owner &&other) noexcept
    {
        clattn_context *context = other.context_;
        reset(other.release(), context);
        return *this;
    }

    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;

    ~owner()
    {
        Release(&object_);
    }

    /** Returns the handle, which stays the object's. */
    Object *get() const noexcept
    {
        return object_;
    }

    /** Gives the handle to the caller, who then releases it by the C function, and leaves the object empty. */
    Object *release() noexcept
    {
        Object *object = object_;
        object_ = nullptr;
        context_ = nullptr;
        return object;
    }

    /** Releases the handle and takes over another one, or none; the arguments are those of the constructor. */
    void reset(Object *object = nullptr, clattn_context *context = nullptr) noexcept
    {
        Object *former = object_;
        object_ = object;
        context_ = object ? context : nullptr;
        Release(&former);
    }

    /** Tells whether there is a handle. */
    explicit operator bool() const noexcept
    {
        return object_ != nullptr;
    }

    /** Returns the context that `object` is or was made of, or NULL. */
    friend clattn_context *context_of(const owner &object) noexcept
    {
        return detail::context_of(object.object_, object.context_);
    }

  private:
    Object *object_;
    clattn_context *context_;
};

/** A #clattn_context. */
class context : public owner<clattn_context, clattn_context_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_context_create. */
    clattn_status create(const clattn_context_params &params = context_params())
    {
        clattn_context *made = nullptr;
        clattn_status status = clattn_context_create(&params, &made);
        reset(made);
        return detail::checked(status, nullptr);
    }

    /** Adopts the application's objects, which take the place of those in `params`; `queue` may be NULL. */
    clattn_status create(handle<cl_context> opencl_context, handle<cl_device_id> opencl_device,
                         handle<cl_command_queue> queue, const clattn_context_params &params = context_params())
    {
        clattn_context_params adopting = params;
        adopting.opencl_context = opencl_context;
        adopting.opencl_device = opencl_device;
        adopting.queue = queue;
        return create(adopting);
    }

    /** Returns what clattn_context_message tells of the calling thread's last failure on the context, or on an object
     * that was made of it. On an empty context it is that of a function without one, such as create. */
    std::string message() const
    {
        return detail::message(get());
    }

    /** clattn_context_opencl_context; `cl::Context(context.opencl_context(), true)` retains it. */
    cl_context opencl_context() const
    {
        return clattn_context_opencl_context(get());
    }

    /** clattn_context_opencl_device. */
    cl_device_id opencl_device() const
    {
        return clattn_context_opencl_device(get());
    }

    /** clattn_context_queue. */
    cl_command_queue queue() const
    {
        return clattn_context_queue(get());
    }

    /** X_supports for the X of `desc`. Never throws: the status is the answer, and *reason says why. */
    template <typename Desc> clattn_status supports(const Desc &desc, const char **reason = nullptr) const
    {
        return detail::supports(get(), &desc, reason);
    }

    /** X_prewarm for the X of `desc`. */
    template <typename Desc> clattn_status prewarm(const Desc &desc) const
    {
        return detail::checked(detail::prewarm(get(), &desc), get());
    }

    /** X_run for the X of `desc` and `args`. */
    template <typename Desc, typename Args>
    clattn_status run(handle<cl_command_queue> queue, const Desc &desc, const Args &args, const wait_list &wait = {},
                      const event_target &event = {}) const
    {
        return detail::checked(event.of([&](cl_event *target) {
            return detail::run(get(), queue, &desc, &args, wait.count(), wait.events(), target);
        }),
                               get());
    }

    /** clattn_context_device_info. */
    clattn_status device_info(clattn_device_info &info) const
    {
        return detail::checked(clattn_context_device_info(get(), &info), nullptr);
    }

    /** clattn_context_program_statistics. */
    clattn_status program_statistics(clattn_program_statistics &statistics) const
    {
        return detail::checked(clattn_context_program_statistics(get(), &statistics), get());
    }

    /** clattn_context_save_programs. */
    clattn_status save_programs() const
    {
        return detail::checked(clattn_context_save_programs(get()), get());
    }

    /** clattn_context_cache_dir. */
    const char *cache_dir(const char **reason = nullptr) const
    {
        return clattn_context_cache_dir(get(), reason);
    }

    /** Fills `text` by clattn_wisdom_export; after a failure it is empty. */
    clattn_status wisdom_export(std::string &text) const
    {
        size_t bytes = 0;
        clattn_status status;
        do { /* another thread may add to it between two calls */
            text.resize(bytes);
            status = clattn_wisdom_export(get(), &text[0], text.size(), &bytes);
        } while (status == CLATTN_ERROR_BUFFER_TOO_SMALL || (status == CLATTN_SUCCESS && bytes > text.size()));
        text.resize(status == CLATTN_SUCCESS ? bytes : 0);
        return detail::checked(status, get());
    }

    /** clattn_wisdom_import. */
    clattn_status wisdom_import(const std::string &text, size_t *records = nullptr) const
    {
        return detail::checked(clattn_wisdom_import(get(), text.data(), text.size(), records), get());
    }

    /** clattn_wisdom_clear. */
    clattn_status wisdom_clear() const
    {
        return detail::checked(clattn_wisdom_clear(get()), get());
    }

    /** clattn_wisdom_save. */
    clattn_status wisdom_save(clattn_wisdom_mode mode) const
    {
        return detail::checked(clattn_wisdom_save(get(), mode), get());
    }
};

/** A list of #clattn_devices. */
class devices : public owner<clattn_devices, clattn_devices_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_devices_create. */
    clattn_status create(const clattn_context_params &params = context_params())
    {
        clattn_devices *made = nullptr;
        clattn_status status = clattn_devices_create(&params, &made);
        reset(made);
        return detail::checked(status, nullptr);
    }

    /** clattn_devices_count. */
    size_t count() const
    {
        return clattn_devices_count(get());
    }

    /** clattn_devices_info. */
    clattn_status info(size_t index, clattn_device_info &info) const
    {
        return detail::checked(clattn_devices_info(get(), index, &info), nullptr);
    }

    /** clattn_devices_skipped_count. */
    size_t skipped_count() const
    {
        return clattn_devices_skipped_count(get());
    }

    /** clattn_devices_skipped. */
    const char *skipped(size_t index) const
    {
        return clattn_devices_skipped(get(), index);
    }
};

/** A #clattn_transformer. */
class transformer : public owner<clattn_transformer, clattn_transformer_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_transformer_create. */
    clattn_status create(const context &maker, const clattn_transformer_desc &desc, const clattn_weight_source &source)
    {
        clattn_transformer *made = nullptr;
        clattn_status status = clattn_transformer_create(maker.get(), &desc, &source, &made);
        reset(made, maker.get());
        return detail::checked(status, maker.get());
    }

    /** Fills the object by clattn_group_transformer_create. */
    clattn_status create(const context &maker, const clattn_group &group, const clattn_transformer_desc &desc,
                         const clattn_weight_source &source)
    {
        clattn_transformer *made = nullptr;
        clattn_status status = clattn_group_transformer_create(maker.get(), &group, &desc, &source, &made);
        reset(made, maker.get());
        return detail::checked(status, maker.get());
    }

    /** clattn_transformer_has_read. */
    bool has_read(const char *name) const
    {
        return clattn_transformer_has_read(get(), name) != 0;
    }

    /** clattn_transformer_weight_bytes. */
    size_t weight_bytes() const
    {
        return clattn_transformer_weight_bytes(get());
    }

    /** clattn_transformer_parameters. */
    size_t parameters() const
    {
        return clattn_transformer_parameters(get());
    }
};

/** A #clattn_trainer. */
class trainer : public owner<clattn_trainer, clattn_trainer_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_trainer_create. */
    clattn_status create(const transformer &model)
    {
        clattn_trainer *made = nullptr;
        clattn_status status = clattn_trainer_create(model.get(), &made);
        reset(made, context_of(model));
        return detail::checked(status, context_of(model));
    }

    /** Fills the object by clattn_group_trainer_create. */
    clattn_status create(const transformer &model, const clattn_group &group)
    {
        clattn_trainer *made = nullptr;
        clattn_status status = clattn_group_trainer_create(model.get(), &group, &made);
        reset(made, context_of(model));
        return detail::checked(status, context_of(model));
    }

    /** clattn_trainer_moments_read. */
    clattn_status moments_read(cl_command_queue queue, size_t index, int32_t rank, float *first, float *second)
    {
        return detail::checked(clattn_trainer_moments_read(get(), queue, index, rank, first, second),
                               context_of(*this));
    }

    /** clattn_trainer_moments_write. */
    clattn_status moments_write(cl_command_queue queue, size_t index, const float *first, const float *second)
    {
        return detail::checked(clattn_trainer_moments_write(get(), queue, index, first, second), context_of(*this));
    }

    /** clattn_trainer_bytes. */
    size_t bytes() const
    {
        return clattn_trainer_bytes(get());
    }

    /** clattn_trainer_parameter_count. */
    size_t parameter_count() const
    {
        return clattn_trainer_parameter_count(get());
    }

    /** clattn_trainer_parameter. */
    clattn_status get_parameter(size_t index, clattn_parameter &written) const
    {
        return detail::checked(clattn_trainer_parameter(get(), index, &written), context_of(*this));
    }

    /** clattn_trainer_update; `event` as in clattn::plan::enqueue. */
    clattn_status update(handle<cl_command_queue> queue, const clattn_update_args &args, const wait_list &wait = {},
                         const event_target &event = {}) const
    {
        return detail::checked(event.of([&](cl_event *target) {
            return clattn_trainer_update(get(), queue, &args, wait.count(), wait.events(), target);
        }),
                               context_of(*this));
    }

    /** clattn_trainer_squares. */
    clattn_binding squares() const
    {
        return clattn_trainer_squares(get());
    }
};

/** A #clattn_plan. */
class plan : public owner<clattn_plan, clattn_plan_release>
{
  public:
    using owner::owner;

    /** Fills the object by X_plan_create for the X of `desc`. The maker is a `clattn::context`, for encoders and
     * decoders a `clattn::transformer`, and for training a `clattn::trainer`. */
    template <typename Object, void (*Release)(Object **), typename Desc>
    clattn_status create(const owner<Object, Release> &maker, const Desc &desc,
                         const clattn_plan_options &options = plan_options())
    {
        clattn_plan *made = nullptr;
        clattn_status status = detail::plan_create(maker.get(), &desc, &options, &made);
        reset(made, context_of(maker));
        return detail::checked(status, context_of(maker));
    }

    /** X_enqueue for the X of `args`, which is that of the plan or INVALID_ARGUMENT. Decoders are enqueued by
     * clattn::decoder_state. */
    template <typename Args>
    clattn_status enqueue(handle<cl_command_queue> queue, const Args &args, const wait_list &wait = {},
                          const event_target &event = {}) const
    {
        return detail::checked(event.of([&](cl_event *target) {
            return detail::enqueue(get(), queue, &args, wait.count(), wait.events(), target);
        }),
                               context_of(*this));
    }

    /** clattn_plan_workspace_size. */
    size_t workspace_size() const
    {
        return clattn_plan_workspace_size(get());
    }

    /** clattn_plan_solver. */
    const char *solver() const
    {
        return clattn_plan_solver(get());
    }

    /** clattn_plan_explain. */
    const char *explain() const
    {
        return clattn_plan_explain(get());
    }

    /** clattn_plan_launch_count. */
    size_t launch_count() const
    {
        return clattn_plan_launch_count(get());
    }

    /** clattn_plan_parameter_count. */
    size_t parameter_count() const
    {
        return clattn_plan_parameter_count(get());
    }

    /** clattn_plan_parameter_info. */
    clattn_status parameter_info(size_t index, clattn_plan_parameter &parameter) const
    {
        return detail::checked(clattn_plan_parameter_info(get(), index, &parameter), nullptr);
    }

    /** clattn_wisdom_learn. */
    clattn_status wisdom_learn(uint32_t rank, uint64_t nanoseconds) const
    {
        return detail::checked(clattn_wisdom_learn(get(), rank, nanoseconds), context_of(*this));
    }

    /** clattn_wisdom_forget. */
    clattn_status wisdom_forget() const
    {
        return detail::checked(clattn_wisdom_forget(get()), context_of(*this));
    }

    /** clattn_wisdom_key. */
    const char *wisdom_key() const
    {
        return clattn_wisdom_key(get());
    }
};

/** A #clattn_job, which makes a plan in the background. */
class job : public owner<clattn_job, clattn_job_release>
{
  public:
    using owner::owner;

    /** Begins what clattn::plan::create would do. Of `options.background` the callback and its argument count; the
     * callback gets the C handle, perhaps before this call has returned. */
    template <typename Object, void (*Release)(Object **), typename Desc>
    clattn_status create(const owner<Object, Release> &maker, const Desc &desc,
                         const clattn_plan_options &options = plan_options())
    {
        clattn_job *made = nullptr;
        clattn_plan_options background = options;
        background.background.job = &made;
        clattn_status status = detail::plan_create(maker.get(), &desc, &background, nullptr);
        reset(made, context_of(maker));
        return detail::checked(status, context_of(maker));
    }

    /** clattn_job_result; `made` is empty unless it succeeds. BUSY is returned, never thrown. */
    clattn_status result(plan &made) const
    {
        return take(clattn_job_result, made);
    }

    /** clattn_job_wait; otherwise as result. */
    clattn_status wait(plan &made) const
    {
        return take(clattn_job_wait, made);
    }

    /** Returns what clattn_job_message tells. */
    std::string message() const
    {
        return detail::text([this](char *buffer, size_t bytes) { return clattn_job_message(get(), buffer, bytes); });
    }

    /** clattn_job_cancel. */
    void cancel() const
    {
        clattn_job_cancel(get());
    }

  private:
    clattn_status take(clattn_status (*function)(clattn_job *, clattn_plan **), plan &taker) const
    {
        clattn_plan *made = nullptr;
        clattn_status status = function(get(), &made);
        taker.reset(made, context_of(*this));
        return status == CLATTN_ERROR_BUSY ? status : detail::checked_by(status, [this] { return message(); });
    }
};

/** A #clattn_control; `args.control = control.get()` has it watch a call. */
class control : public owner<clattn_control, clattn_control_release>
{
  public:
    using owner::owner;

    /** clattn_control_create. */
    clattn_status create(const clattn_control_params &params = control_params())
    {
        clattn_control *made = nullptr;
        clattn_status status = clattn_control_create(&params, &made);
        reset(made);
        return detail::checked(status, nullptr);
    }

    /** clattn_control_cancel. */
    void cancel() const noexcept
    {
        clattn_control_cancel(get());
    }

    /** clattn_control_reset, under another name because owner::reset releases. */
    void rearm() const noexcept
    {
        clattn_control_reset(get());
    }

    /** clattn_control_expect. */
    void expect(size_t calls) const noexcept
    {
        clattn_control_expect(get(), calls);
    }

    /** Tells whether it is cancelled. */
    bool is_cancelled() const noexcept
    {
        return clattn_control_is_cancelled(get()) != 0;
    }

    /** clattn_control_progress. */
    double progress() const noexcept
    {
        return clattn_control_progress(get());
    }
};

/** A #clattn_group_local. */
class group_local : public owner<clattn_group_local, clattn_group_local_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_group_local_create. */
    clattn_status create(int32_t ranks, uint32_t timeout_ms = 0)
    {
        clattn_group_local *made = nullptr;
        clattn_status status = clattn_group_local_create(ranks, timeout_ms, &made);
        reset(made);
        return detail::checked(status, nullptr);
    }

    /** clattn_group_local_rank. */
    clattn_status rank(int32_t rank, clattn_group &group) const
    {
        return detail::checked(clattn_group_local_rank(get(), rank, &group), nullptr);
    }
};

/** A #clattn_group_grid. */
class group_grid : public owner<clattn_group_grid, clattn_group_grid_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_group_grid_create. */
    clattn_status create(const clattn_group &whole, int32_t columns)
    {
        clattn_group_grid *made = nullptr;
        clattn_status status = clattn_group_grid_create(&whole, columns, &made);
        reset(made);
        return detail::checked(status, nullptr);
    }

    /** clattn_group_grid_row. */
    clattn_status row(clattn_group &line) const
    {
        return detail::checked(clattn_group_grid_row(get(), &line), nullptr);
    }

    /** clattn_group_grid_column. */
    clattn_status column(clattn_group &line) const
    {
        return detail::checked(clattn_group_grid_column(get(), &line), nullptr);
    }
};

/** A #clattn_group_attention. */
class group_attention : public owner<clattn_group_attention, clattn_group_attention_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_group_attention_create. */
    clattn_status create(const context &maker, const clattn_group &group, const clattn_group_attention_desc &desc)
    {
        clattn_group_attention *made = nullptr;
        clattn_status status = clattn_group_attention_create(maker.get(), &group, &desc, &made);
        reset(made, maker.get());
        return detail::checked(status, maker.get());
    }

    /** clattn_group_attention_run. */
    clattn_status run(handle<cl_command_queue> queue, const clattn_attention_args &args, const wait_list &wait = {},
                      const event_target &event = {})
    {
        return detail::checked(event.of([&](cl_event *target) {
            return clattn_group_attention_run(get(), queue, &args, wait.count(), wait.events(), target);
        }),
                               context_of(*this));
    }
};

/** A #clattn_decoder_state. */
class decoder_state : public owner<clattn_decoder_state, clattn_decoder_state_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_decoder_state_create. */
    clattn_status create(const plan &decoder)
    {
        clattn_decoder_state *made = nullptr;
        clattn_status status = clattn_decoder_state_create(decoder.get(), &made);
        reset(made, context_of(decoder));
        return detail::checked(status, context_of(decoder));
    }

    /** clattn_decoder_state_bytes. */
    size_t bytes() const
    {
        return clattn_decoder_state_bytes(get());
    }

    /** clattn_decoder_begin. */
    clattn_status begin(handle<cl_command_queue> queue, const clattn_decoder_begin_args &args,
                        const wait_list &wait = {}, const event_target &event = {})
    {
        return detail::checked(event.of([&](cl_event *target) {
            return clattn_decoder_begin(get(), queue, &args, wait.count(), wait.events(), target);
        }),
                               context_of(*this));
    }

    /** clattn_decoder_enqueue. */
    clattn_status enqueue(handle<cl_command_queue> queue, const clattn_decoder_args &args, const wait_list &wait = {},
                          const event_target &event = {})
    {
        return detail::checked(event.of([&](cl_event *target) {
            return clattn_decoder_enqueue(get(), queue, &args, wait.count(), wait.events(), target);
        }),
                               context_of(*this));
    }

    /** clattn_decoder_length. */
    size_t length(size_t sequence) const
    {
        return clattn_decoder_length(get(), sequence);
    }

    /** clattn_decoder_truncate. */
    clattn_status truncate(size_t length)
    {
        return detail::checked(clattn_decoder_truncate(get(), length), context_of(*this));
    }

    /** clattn_decoder_reorder. */
    clattn_status reorder(handle<cl_command_queue> queue, size_t beams, const size_t *parents,
                          const wait_list &wait = {}, const event_target &event = {})
    {
        return detail::checked(event.of([&](cl_event *target) {
            return clattn_decoder_reorder(get(), queue, beams, parents, wait.count(), wait.events(), target);
        }),
                               context_of(*this));
    }

    /** clattn_generate. */
    clattn_status generate(handle<cl_command_queue> queue, const clattn_generate_desc &desc, const int32_t *prompts,
                           const size_t *prompt_lengths, clattn_generated &results)
    {
        return detail::checked(clattn_generate(get(), queue, &desc, prompts, prompt_lengths, &results),
                               context_of(*this));
    }
};

/** clattn_layout_contiguous of the extents in braces. */
inline clattn_layout layout_contiguous(clattn_dtype dtype, std::initializer_list<size_t> extents)
{
    return clattn_layout_contiguous(dtype, static_cast<int32_t>(extents.size()), extents.begin());
}

/** clattn_binding_buffer of a cl_mem or a cl::Buffer. */
inline clattn_binding binding_buffer(handle<cl_mem> buffer, int64_t offset = 0)
{
    return clattn_binding_buffer(buffer, offset);
}

/** clattn_binding_image of a cl_mem or a cl::Image2D. */
inline clattn_binding binding_image(handle<cl_mem> image)
{
    return clattn_binding_image(image);
}

/** clattn_transformer_preset. */
inline clattn_status transformer_preset(clattn_preset preset, clattn_transformer_desc &desc, clattn_stack_desc &encoder,
                                        clattn_stack_desc &decoder)
{
    return detail::checked(clattn_transformer_preset(preset, &desc, &encoder, &decoder), nullptr);
}

/** clattn_vision_preset. */
inline clattn_status vision_preset(clattn_vision model, clattn_transformer_desc &desc,
                                   stack_desc (&encoder)[CLATTN_VISION_STAGES], clattn_name_format *format = nullptr)
{
    return detail::checked(clattn_vision_preset(model, &desc, encoder, format), nullptr);
}

CLATTN_HPP_END

#endif
