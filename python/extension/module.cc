// SPDX-License-Identifier: Apache-2.0
//
// The module atoll._atoll: Atoll's C interface as objects of CPython. What makes it pleasant to use
// (numpy, names, checks of types) is python/atoll.
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

PyMethodDef functions[] = {{"version", Version, METH_NOARGS, "version() -> str"},
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
