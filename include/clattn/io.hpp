/** @file
 * The readers of libclattn-io for C++11 and later, as clattn.hpp has the library: what is said there holds here, too.
 *
 * A member that fails writes the line of io.h to its clattn_io_error, if it is given one, and throws a clattn::error
 * with that line if `CLATTN_HPP_ENABLE_EXCEPTIONS` is defined. A reader gives weights by the C callback:
 *
 *     clattn::weight_source source;
 *     source.lookup = clattn_safetensors_lookup;
 *     source.user = file.get();
 */
#ifndef CLATTN_IO_HPP
#define CLATTN_IO_HPP

#include "clattn.hpp"
#include "io.h"

CLATTN_HPP_BEGIN

namespace detail
{

/* Returns `status`, or throws it with the line `told`, which also goes to *error. */
inline clattn_status checked_io(clattn_status status, const clattn_io_error &told, clattn_io_error *error)
{
    if (status != CLATTN_SUCCESS && error)
        *error = told;
    return checked_by(status, [&] { return std::string(told.message); });
}

/* Fills an owner by `create`, a reader's. */
template <typename Object, void (*Release)(Object **)>
clattn_status open(owner<Object, Release> &reader, clattn_status (*create)(const char *, Object **, clattn_io_error *),
                   const char *path, clattn_io_error *error)
{
    Object *made = nullptr;
    clattn_io_error told = {};
    clattn_status status = create(path, &made, &told);
    reader.reset(made);
    return checked_io(status, told, error);
}

} // namespace detail

/** A #clattn_npy. */
class npy : public owner<clattn_npy, clattn_npy_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_npy_create. */
    clattn_status create(const char *path, clattn_io_error *error = nullptr)
    {
        return detail::open(*this, clattn_npy_create, path, error);
    }

    /** clattn_npy_tensor. */
    clattn_host_tensor tensor() const
    {
        return clattn_npy_tensor(get());
    }
};

/** clattn_npy_write, with the extents in braces. */
inline clattn_status npy_write(const char *path, clattn_dtype dtype, std::initializer_list<size_t> extents,
                               const void *data, clattn_io_error *error = nullptr)
{
    clattn_io_error told = {};
    clattn_status status =
        clattn_npy_write(path, dtype, static_cast<int32_t>(extents.size()), extents.begin(), data, &told);
    return detail::checked_io(status, told, error);
}

/** A #clattn_safetensors. */
class safetensors : public owner<clattn_safetensors, clattn_safetensors_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_safetensors_create. */
    clattn_status create(const char *path, clattn_io_error *error = nullptr)
    {
        return detail::open(*this, clattn_safetensors_create, path, error);
    }

    /** clattn_safetensors_count. */
    size_t count() const
    {
        return clattn_safetensors_count(get());
    }

    /** clattn_safetensors_at. */
    clattn_status at(size_t index, clattn_safetensors_entry &entry) const
    {
        return detail::checked_io(clattn_safetensors_at(get(), index, &entry), clattn_io_error(), nullptr);
    }

    /** clattn_safetensors_find; a tensor that is not there is no failure. */
    clattn_status find(const char *name, clattn_host_tensor &tensor, clattn_io_error *error = nullptr) const
    {
        clattn_io_error told = {};
        return detail::checked_io(clattn_safetensors_find(get(), name, &tensor, &told), told, error);
    }
};

/** A #clattn_ctranslate2. */
class ctranslate2 : public owner<clattn_ctranslate2, clattn_ctranslate2_release>
{
  public:
    using owner::owner;

    /** Fills the object by clattn_ctranslate2_create. */
    clattn_status create(const char *path, clattn_io_error *error = nullptr)
    {
        return detail::open(*this, clattn_ctranslate2_create, path, error);
    }

    /** clattn_ctranslate2_spec. */
    const char *spec() const
    {
        return clattn_ctranslate2_spec(get());
    }

    /** clattn_ctranslate2_revision. */
    uint32_t revision() const
    {
        return clattn_ctranslate2_revision(get());
    }

    /** clattn_ctranslate2_count. */
    size_t count() const
    {
        return clattn_ctranslate2_count(get());
    }

    /** clattn_ctranslate2_at. */
    clattn_status at(size_t index, clattn_ctranslate2_entry &entry) const
    {
        return detail::checked_io(clattn_ctranslate2_at(get(), index, &entry), clattn_io_error(), nullptr);
    }

    /** clattn_ctranslate2_find; a variable that is not there is no failure. */
    clattn_status find(const char *name, clattn_host_tensor &tensor, clattn_io_error *error = nullptr) const
    {
        clattn_io_error told = {};
        return detail::checked_io(clattn_ctranslate2_find(get(), name, &tensor, &told), told, error);
    }

    /** clattn_ctranslate2_integer. */
    bool integer(const char *name, int32_t &value) const
    {
        return clattn_ctranslate2_integer(get(), name, &value) != 0;
    }
};

CLATTN_HPP_END

#endif
