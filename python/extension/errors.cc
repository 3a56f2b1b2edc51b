// SPDX-License-Identifier: Apache-2.0
//
// Failures as exceptions: one class for each status, each of them an atoll.Error and, beside that,
// what programs in Python catch in such a case.
#include <cerrno>

#include "python/extension/python.h"

namespace atollpython {
namespace {

struct ErrorClass {
  AtollStatus status;
  const char* name;  // qualified
  PyObject** base;   // beside Error; nullptr: none
  const char* doc;
  PyObject* type;
};

ErrorClass classes[] = {
    {ATOLL_INVALID_ARGUMENT, "atoll.InvalidArgumentError", &PyExc_ValueError,
     "An argument is wrong: a name, an index, a size, a type.", nullptr},
    {ATOLL_CORRUPT_MODEL, "atoll.CorruptModelError", &PyExc_ValueError,
     "The bytes are no model, or no sound one.", nullptr},
    {ATOLL_UNSUPPORTED, "atoll.UnsupportedError", &PyExc_NotImplementedError,
     "Atoll, or this device, does not do that.", nullptr},
    {ATOLL_NOT_FOUND, "atoll.NotFoundError", &PyExc_FileNotFoundError,
     "There is no such file or device.", nullptr},
    {ATOLL_PERMISSION_DENIED, "atoll.PermissionDeniedError", &PyExc_PermissionError,
     "The file or device is there, but not for this user.", nullptr},
    {ATOLL_DEVICE_BUSY, "atoll.DeviceBusyError", &PyExc_OSError, "Another process has the device.",
     nullptr},
    {ATOLL_DEVICE_LOST, "atoll.DeviceLostError", &PyExc_OSError,
     "The device went away and did not come back in time.", nullptr},
    {ATOLL_TIMEOUT, "atoll.DeadlineError", &PyExc_TimeoutError,
     "The device did not answer in time.", nullptr},
    {ATOLL_RESOURCE_EXHAUSTED, "atoll.ResourceExhaustedError", &PyExc_MemoryError,
     "There is not enough memory, here or on the device.", nullptr},
    {ATOLL_CANCELLED, "atoll.CancelledError", nullptr, "The invocation was cancelled.", nullptr},
    {ATOLL_INTERNAL, "atoll.InternalError", &PyExc_RuntimeError, "Something that must not happen.",
     nullptr},
};

PyObject* Set(AtollStatus status, const char* message) {
  for (const ErrorClass& known : classes) {
    if (known.status != status) continue;
    const Ref text(MakeText(message));
    const Ref error(text ? PyObject_CallFunctionObjArgs(known.type, text.get(), nullptr) : nullptr);
    if (!error) return nullptr;
    if (status == ATOLL_NOT_FOUND) {
      const Ref number(PyLong_FromLong(ENOENT));
      if (!number || PyObject_SetAttrString(error.get(), "errno", number.get()) != 0) {
        return nullptr;
      }
    }
    PyErr_SetObject(known.type, error.get());
    return nullptr;
  }
  PyErr_Format(PyExc_SystemError, "unknown status %d: %s", static_cast<int>(status), message);
  return nullptr;
}

}  // namespace

PyObject* Raise(AtollStatus status) { return Set(status, AtollLastError()); }

PyObject* RaiseInvalidArgument(const char* message) { return Set(ATOLL_INVALID_ARGUMENT, message); }

bool AddErrors(PyObject* module) {
  static PyObject* error = nullptr;
  error = PyErr_NewExceptionWithDoc("atoll.Error", "A failure of Atoll's, as one sentence.",
                                    nullptr, nullptr);
  if (!AddObject(module, "Error", error)) return false;
  for (ErrorClass& made : classes) {
    const Ref bases(made.base == nullptr ? PyTuple_Pack(1, error)
                                         : PyTuple_Pack(2, error, *made.base));
    if (!bases) return false;
    made.type = PyErr_NewExceptionWithDoc(made.name, made.doc, bases.get(), nullptr);
    if (!AddObject(module, made.name + sizeof("atoll.") - 1, made.type)) return false;
  }
  return true;
}

}  // namespace atollpython
