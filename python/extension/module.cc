// SPDX-License-Identifier: Apache-2.0
//
// The module atoll._atoll: Atoll's C interface as objects of CPython. What makes it pleasant to use
// (numpy, names, checks of types) is python/atoll.
#include <mutex>
#include <string>
#include <vector>

#include "python/extension/python.h"

namespace atollpython {

bool AddObject(PyObject* module, const char* name, PyObject* object) {
  if (object == nullptr) return false;
  Py_INCREF(object);  // PyModule_AddObject takes it if it succeeds
  if (PyModule_AddObject(module, name, object) == 0) return true;
  Py_DECREF(object);
  return false;
}

PyTypeObject* AddType(PyObject* module, const char* name, PyType_Spec* spec) {
  PyObject* const type = PyType_FromSpec(spec);
  return AddObject(module, name, type) ? reinterpret_cast<PyTypeObject*>(type) : nullptr;
}

namespace {

PyObject* Version(PyObject*, PyObject*) { return PyUnicode_FromString(AtollVersion()); }

PyObject* CpuName(PyObject*, PyObject*) {
  const char* name = nullptr;
  const AtollStatus status = AtollCpuName(&name);
  return status == ATOLL_OK ? PyUnicode_FromString(name) : Raise(status);
}

// ---- Notes and warnings -------------------------------------------------------------------------

// They come on any thread that is inside Atoll, without the GIL, and must not wait for it: whoever
// has it may be waiting for Atoll. So they are kept until the main thread gets to them.
struct Note {
  AtollLogSeverity severity;
  std::string message;
};
constexpr size_t kMaxNotes = 100;
std::mutex notes_mutex;
std::vector<Note> notes;           // guarded by notes_mutex
PyObject* log_function = nullptr;  // guarded by the GIL

int HandOverNotes(void*) {
  std::vector<Note> taken;
  {
    const std::lock_guard lock(notes_mutex);
    taken.swap(notes);
  }
  for (const Note& note : taken) {
    if (log_function == nullptr) break;
    Py_INCREF(log_function);  // it may set another one
    const Ref function(log_function);
    const Ref text(MakeText(note.message.c_str()));
    const Ref done(text ? PyObject_CallFunction(function.get(), "iO",
                                                static_cast<int>(note.severity), text.get())
                        : nullptr);
    if (!done) PyErr_WriteUnraisable(function.get());
  }
  return 0;
}

void KeepNote(AtollLogSeverity severity, const char* message, void*) {
  {
    const std::lock_guard lock(notes_mutex);
    if (notes.size() < kMaxNotes) notes.push_back({severity, message});
  }
  Py_AddPendingCall(HandOverNotes, nullptr);
}

PyObject* SetLog(PyObject*, PyObject* function) {
  Ref old(std::exchange(log_function, nullptr));
  if (function != Py_None) {
    Py_INCREF(function);
    log_function = function;
  }
  AtollSetLogCallback(log_function != nullptr ? KeepNote : nullptr, nullptr);
  return None();
}

PyMethodDef functions[] = {{"set_log", SetLog, METH_O,
                            "set_log(function or None)\n\nThe main thread calls function(severity, "
                            "message) with notes (0), "
                            "warnings (1) and errors (2)."},
                           {"version", Version, METH_NOARGS, "version() -> str"},
                           {"cpu_name", CpuName, METH_NOARGS,
                            "cpu_name() -> str\n\nThe instruction set whose kernels are used."},
                           {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "atoll._atoll",
                          "Atoll's C interface.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace atollpython

PyMODINIT_FUNC PyInit__atoll() {
  using namespace atollpython;
  Ref module(PyModule_Create(&definition));
  if (!module || !AddErrors(module.get()) || !AddModel(module.get()) ||
      !AddDelegate(module.get()) || !AddInterpreter(module.get())) {
    return nullptr;
  }
  return module.release();
}
