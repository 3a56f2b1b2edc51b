// SPDX-License-Identifier: Apache-2.0
//
// What the files of the extension share: CPython's limited interface, references that count
// themselves, and Atoll's failures as exceptions.
//
// One binary serves CPython 3.9 and later. Of what it uses, the buffer protocol alone is newer in
// the limited interface (3.11); its functions and the layout of Py_buffer are those of 3.9, so they
// are declared here where the headers hide them.
//
// Everything here needs the GIL. Calls into Atoll that may take long are made without it.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030b0000
extern "C" {
struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};
int PyObject_GetBuffer(PyObject* object, Py_buffer* view, int flags);
void PyBuffer_Release(Py_buffer* view);
}
#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#endif

namespace atollpython {

// An owned reference; nullptr, as in CPython, means that an exception is set.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Runs `call` without the GIL and returns what it returns. `call` touches no object of Python's.
template <typename Call>
auto WithoutGil(const Call& call) {
  PyThreadState* const state = PyEval_SaveThread();
  auto result = call();
  PyEval_RestoreThread(state);
  return result;
}

// Whether a handle that process `owner` made may be deleted. Not in a child of it (os.fork):
// threads that would have to end first are not there, and memory goes with the child.
inline bool MayDelete(pid_t owner) { return getpid() == owner; }

// Another object's memory, contiguous, for as long as this lives.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory(Memory&& other) noexcept : buffer_(std::exchange(other.buffer_, {})) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~Memory() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }
  // False with an exception if `object` has none, or none that can be written for PyBUF_WRITABLE.
  bool Open(PyObject* object, int flags) {
    return PyObject_GetBuffer(object, &buffer_, flags) == 0;
  }
  void* data() const { return buffer_.buf; }
  // Whose memory it is; nullptr if there is none.
  PyObject* object() const { return buffer_.obj; }
  size_t size() const { return static_cast<size_t>(buffer_.len); }

 private:
  Py_buffer buffer_ = {};
};

// Sets the exception for a status with the calling thread's AtollLastError; returns nullptr.
// ATOLL_NOT_FOUND and so on have classes of their own (errors.cc).
PyObject* Raise(AtollStatus status);
// Sets InvalidArgumentError; returns nullptr.
PyObject* RaiseInvalidArgument(const char* message);
// For arguments that PyArg_Parse... did not take: numbers that are too large are such an error,
// too.
inline PyObject* RaiseUnparsed() {
  if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) return nullptr;
  PyErr_Clear();
  return RaiseInvalidArgument("a number among the arguments is out of range");
}

// Add what they are about to the module; false with an exception set.
bool AddErrors(PyObject* module);
bool AddModel(PyObject* module);
bool AddDelegate(PyObject* module);
bool AddInterpreter(PyObject* module);

// Adds `object`, of which the module gets a reference of its own; false, as for nullptr, with an
// exception set.
bool AddObject(PyObject* module, const char* name, PyObject* object);
// Adds a type made from `spec`; nullptr with an exception set. The type lives as long as the
// process.
PyTypeObject* AddType(PyObject* module, const char* name, PyType_Spec* spec);

// The handle in an object of these types, nullptr for None; false with TypeError for others.
bool ModelOf(PyObject* object, AtollModel** model);
bool DelegateOf(PyObject* object, AtollDelegate** delegate);

// Py_None with a reference more.
inline PyObject* None() {
  Py_INCREF(Py_None);
  return Py_None;
}

// Text of Atoll's, which may quote names from files that are not UTF-8.
inline PyObject* MakeText(const char* text) {
  return PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace");
}

// Makes a dictionary, entry by entry; the last reference is nullptr if one failed.
class Dict {
 public:
  Dict() : dict_(PyDict_New()) {}
  Dict& Add(const char* key, PyObject* owned) {
    const Ref value(owned);
    const Ref name(value && dict_ ? MakeText(key) : nullptr);
    if (!name || PyDict_SetItem(dict_.get(), name.get(), value.get()) != 0) dict_ = Ref();
    return *this;
  }
  Dict& Text(const char* key, const char* value) { return Add(key, MakeText(value)); }
  Dict& Int(const char* key, int64_t value) { return Add(key, PyLong_FromLongLong(value)); }
  Dict& Float(const char* key, double value) { return Add(key, PyFloat_FromDouble(value)); }
  Dict& Bool(const char* key, int value) { return Add(key, PyBool_FromLong(value)); }
  PyObject* release() { return dict_.release(); }

 private:
  Ref dict_;
};

// A list of `count` objects that `make(index)` makes.
template <typename Make>
PyObject* MakeList(Py_ssize_t count, const Make& make) {
  Ref list(PyList_New(count));
  if (!list) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = make(i);
    if (item == nullptr || PyList_SetItem(list.get(), i, item) != 0) return nullptr;
  }
  return list.release();
}

template <typename T>
PyObject* IntList(const T* values, Py_ssize_t count) {
  return MakeList(count, [values](Py_ssize_t i) { return PyLong_FromLongLong(values[i]); });
}

}  // namespace atollpython
