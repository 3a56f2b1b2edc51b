// SPDX-License-Identifier: Apache-2.0
//
// Delegate: an AtollDelegate, which threads may share; and what is known of devices without one.
#include "python/extension/python.h"

namespace atollpython {
namespace {

PyTypeObject* delegate_type = nullptr;

struct DelegateObject {
  PyObject base;
  AtollDelegate* delegate;
  pid_t owner;
};

AtollDelegate* Handle(PyObject* self) { return reinterpret_cast<DelegateObject*>(self)->delegate; }

PyObject* New(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* const names[] = {
      "device",      "num_threads", "max_partition_nodes", "on_device_loss", "faults", "record",
      "record_note", "stages",      "performance",         "firmware",       nullptr};
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "|ziizzzzizz:Delegate", const_cast<char**>(names),
                                  &options.device, &options.num_threads,
                                  &options.max_partition_nodes, &options.on_device_loss,
                                  &options.faults, &options.record, &options.record_note,
                                  &options.stages, &options.performance, &options.firmware) == 0) {
    return RaiseUnparsed();
  }
  AtollDelegate* delegate = nullptr;
  const AtollStatus status = WithoutGil([&] { return AtollDelegateCreate(&options, &delegate); });
  if (status != ATOLL_OK) return Raise(status);
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) {
    AtollDelegateDelete(delegate);
    return nullptr;
  }
  reinterpret_cast<DelegateObject*>(self)->delegate = delegate;
  reinterpret_cast<DelegateObject*>(self)->owner = getpid();
  return self;
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  AtollDelegate* const delegate = Handle(self);
  if (MayDelete(reinterpret_cast<DelegateObject*>(self)->owner)) {
    WithoutGil([delegate] {
      AtollDelegateDelete(delegate);
      return 0;
    });
  }
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* InfoDict(const AtollDeviceInfo& info) {
  return Dict()
      .Text("name", info.name)
      .Text("description", info.description)
      .Bool("available", info.available)
      .Bool("is_default", info.is_default)
      .Int("array_rows", info.array_rows)
      .Int("array_columns", info.array_columns)
      .Int("clock_hz", info.clock_hz)
      .Int("memory_bytes", info.memory_bytes)
      .Int("link_bytes_per_second", info.link_bytes_per_second)
      .Text("note", info.note == nullptr ? "" : info.note)
      .release();
}

PyObject* Info(PyObject* self, void*) {
  AtollDeviceInfo info = {};
  const AtollStatus status = AtollDelegateGetDeviceInfo(Handle(self), &info);
  return status == ATOLL_OK ? InfoDict(info) : Raise(status);
}

PyObject* IsEmulated(PyObject* self, void*) {
  return PyBool_FromLong(AtollDelegateIsEmulated(Handle(self)));
}

PyObject* Health(PyObject* self, void*) {
  AtollDeviceHealth health = {};
  const AtollStatus status = AtollDelegateGetDeviceHealth(Handle(self), &health);
  if (status != ATOLL_OK) return Raise(status);
  return Dict()
      .Int("failures", health.failures)
      .Int("resets", health.resets)
      .Int("reopenings", health.reopenings)
      .Int("losses", health.losses)
      .Int("replays", health.replays)
      .Int("fallbacks", health.fallbacks)
      .release();
}

PyObject* Compile(PyObject* self, PyObject* object) {
  AtollModel* model = nullptr;
  if (!ModelOf(object, &model)) return nullptr;
  PyObject* bytes = nullptr;
  const AtollStatus status = WithoutGil([&] {
    return AtollDelegateCompileModel(
        Handle(self), model,
        [](const void* data, size_t size, void* user_data) {
          const PyGILState_STATE gil = PyGILState_Ensure();
          *static_cast<PyObject**>(user_data) = PyBytes_FromStringAndSize(
              static_cast<const char*>(data), static_cast<Py_ssize_t>(size));
          PyGILState_Release(gil);
        },
        &bytes);
  });
  if (status == ATOLL_OK) return bytes;
  Py_XDECREF(bytes);
  return Raise(status);
}

PyObject* Devices(PyObject*, PyObject*) {
  const AtollDeviceInfo* devices = nullptr;
  int32_t count = 0;
  const AtollStatus status = WithoutGil([&] { return AtollListDevices(&devices, &count); });
  if (status != ATOLL_OK) return Raise(status);
  return MakeList(count, [devices](Py_ssize_t i) { return InfoDict(devices[i]); });
}

PyObject* Diagnose(PyObject*, PyObject*) {
  static constexpr const char* kLevels[] = {"fine", "note", "warning", "error"};
  const AtollFinding* findings = nullptr;
  int32_t count = 0;
  const AtollStatus status = WithoutGil([&] { return AtollDiagnose(nullptr, &findings, &count); });
  if (status != ATOLL_OK) return Raise(status);
  return MakeList(count, [findings](Py_ssize_t i) {
    const AtollFinding& finding = findings[i];
    return Dict()
        .Text("level", kLevels[finding.level])
        .Text("code", finding.code)
        .Text("device", finding.device)
        .Text("message", finding.message)
        .Text("fix", finding.fix)
        .release();
  });
}

PyMethodDef methods[] = {{"compile", Compile, METH_O, "compile(model) -> bytes of a .tflite file"},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {
    {"info", Info, nullptr, "What the device is made of, as a dict.", nullptr},
    {"is_emulated", IsEmulated, nullptr, "Whether this computer plays the device.", nullptr},
    {"health", Health, nullptr, "What went wrong with the device so far, as a dict.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A device that runs parts of models: Delegate(device='auto', "
                                  "**options).")},
    {Py_tp_new, reinterpret_cast<void*>(New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr}};
PyType_Spec spec = {"atoll._atoll.Delegate", sizeof(DelegateObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
PyMethodDef functions[] = {
    {"devices", Devices, METH_NOARGS, "devices() -> list of dicts: what this computer has"},
    {"diagnose", Diagnose, METH_NOARGS,
     "diagnose() -> list of dicts: why devices cannot be used, and what to do"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddDelegate(PyObject* module) {
  delegate_type = AddType(module, "Delegate", &spec);
  return delegate_type != nullptr && PyModule_AddFunctions(module, functions) == 0;
}

bool DelegateOf(PyObject* object, AtollDelegate** delegate) {
  *delegate = nullptr;
  if (object == Py_None) return true;
  if (PyObject_TypeCheck(object, delegate_type) == 0) {
    PyErr_SetString(PyExc_TypeError, "this is to be an atoll.Delegate");
    return false;
  }
  *delegate = Handle(object);
  return true;
}

}  // namespace atollpython
