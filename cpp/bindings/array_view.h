// NumPy arrays and bytes as spans, without a copy. Python has checked dtype and rank; a mismatch here is a
// TypeError of pybind11's.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/huge_pages.h"

namespace shieldfl::bindings {

namespace py = pybind11;

// C-contiguous and of exactly this dtype: nothing is converted, because converting would copy.
template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
std::span<const T> view(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

// Throws when the array is read-only.
template <typename T>
std::span<T> mutable_view(Array<T>& array) {
  return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

// Any C-contiguous buffer of bytes (bytes, bytearray, memoryview, mmap); valid while `info` lives.
inline std::span<const std::uint8_t> view(const py::buffer_info& info) {
  if (info.itemsize != 1 || info.ndim != 1 || (info.size > 1 && info.strides[0] != 1)) {
    throw py::type_error("expected contiguous bytes: pass bytes, a bytearray or a flat memoryview");
  }
  return {static_cast<const std::uint8_t*>(info.ptr), static_cast<std::size_t>(info.size)};
}

template <typename Bytes>
py::bytes to_bytes(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A bytes object that is still to be filled, and its memory. Nobody else may see it before it is.
struct NewBytes {
  explicit NewBytes(std::size_t size)
      : object(py::reinterpret_steal<py::bytes>(
            PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size)))) {
    if (!object) throw py::error_already_set();
    memory = {reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(object.ptr())), size};
    prefer_huge_pages(memory.data(), size);
  }

  py::bytes object;
  std::span<std::uint8_t> memory;
};

// Hands a vector over to NumPy without a copy.
template <typename T>
py::array_t<T> to_array(std::vector<T>&& values) {
  auto* owner = new std::vector<T>(std::move(values));
  const py::capsule capsule(owner, [](void* pointer) { delete static_cast<std::vector<T>*>(pointer); });
  return py::array_t<T>(static_cast<py::ssize_t>(owner->size()), owner->data(), capsule);
}

}  // namespace shieldfl::bindings
